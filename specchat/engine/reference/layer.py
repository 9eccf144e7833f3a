"""Layers of a recipe in plain torch, over any number of rows together; `decoder.py` runs each row alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specchat.engine.model.rope import tables, tempers
from specchat.engine.program.lower import lower, lower_layer
from specchat.engine.program.ops import (
    Add,
    Advance,
    Attend,
    Buffer,
    Convolve,
    Embed,
    GatedProduct,
    GateInput,
    Half,
    Head,
    MakeInputs,
    Mix,
    Multiply,
    Normalise,
    Op,
    Scale,
)
from specchat.engine.program.table import OpTable
from specchat.engine.recipe import Activation, Apart, Attention, Delta, Experts, Gated, Layer, Matrix, Recipe, ShortConv
from specchat.engine.reference import ops
from specchat.engine.reference.delta import Past, empty
from specchat.engine.reference.ops import Context, LayerRows, Mixture, gated_mlp, norm
from specchat.engine.reference.tensors import ModelTensors, Tensors


def mix(
    rows: LayerRows,
    op: Mix,
    *,
    sigmoid: bool,
    correction: str,
    groups: tuple[int, int],
    factor: float,
    factors: str,
    shared: Gated | None,
    shared_gate: Matrix | None,
    apart: Apart | None,
    activation: Activation,
) -> None:
    of, tensors, inputs = op.of, rows.tensors, rows.buffers[op.source.name]
    if rows.mix is not None:
        rows.buffers[op.out.name] = rows.mix(of, inputs)
        return
    inputs, of_experts, of_shared = (
        rows.buffers[one.name].reshape(-1, one.width) for one in (op.source, op.of_experts, op.of_shared)
    )
    shares, chosen = routed(of, tensors.product(inputs, of.router), tensors, sigmoid, correction, groups)
    shares = shares if factor == 1 else factor * shares
    shares = shares * tensors.vector(factors)[chosen] if factors else shares
    mixed = torch.zeros_like(inputs)
    for number in chosen.unique().tolist():
        row, rank = (chosen == number).nonzero(as_tuple=True)
        expert = replace(of.expert(number), activation=activation)
        mixed[row] += shares[row, rank, None] * gated_mlp(expert, of_experts[row], tensors)
    if shared:
        update = gated_mlp(shared, of_shared, tensors)
        if shared_gate:
            update = tensors.product(inputs, shared_gate).sigmoid() * update
        if apart:
            mixed, update = norm(apart.post_experts, mixed, tensors), norm(apart.post_shared, update, tensors)
        mixed = mixed + update
    rows.buffers[op.out.name] = mixed.view(rows.residual.shape)


def routed(
    of: Experts, scores: Tensor, tensors: Tensors, sigmoid: bool, correction: str, groups: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """The shares float32 [rows, top] of the experts int64 [rows, top] that scores float32 [rows, experts] choose."""
    shares = scores.sigmoid() if sigmoid else scores.softmax(-1)
    ranks = shares + tensors.vector(correction) if correction else shares
    count, chosen_groups = groups
    if chosen_groups < count:
        grouped = ranks.unflatten(-1, (count, -1))
        others = ordered(grouped.topk(2).values.sum(-1))[:, chosen_groups:]
        ranks = grouped.scatter(1, others[..., None].expand(-1, -1, grouped.shape[-1]), float("-inf")).flatten(1)
    chosen = ordered(ranks)[:, : of.top]
    shares = shares.gather(1, chosen)
    return shares / shares.sum(-1, keepdim=True) if of.renormalised else shares, chosen


def ordered(ranks: Tensor) -> Tensor:
    """Places of the values in each row, the largest first, of equal ones the lower: int64 [rows, values]."""
    return ranks.sort(dim=-1, descending=True, stable=True).indices


REFERENCE = OpTable(
    "the reference",
    {
        Embed: ops.embed,
        MakeInputs: ops.token_inputs,
        Normalise: ops.normalise,
        Multiply: ops.product,
        GatedProduct: ops.gated_product,
        Attend: ops.attend,
        Convolve: ops.convolve,
        Advance: ops.advance,
        Mix: mix,
        GateInput: ops.gate_input,
        Add: ops.add,
        Scale: ops.scale,
        Head: ops.head,
    },
    elsewhere=("causal", "temper", "window"),
)
"""Attention within a window or to later rows, and tempered queries, are in the rows' context."""


def run(program: tuple[Op, ...], rows: LayerRows, *halves: Half) -> Tensor:
    """The residual stream float32 [..., rows, hidden] after a layer's operations of `halves`."""
    for op in program:
        if op.half in halves:
            REFERENCE.run(op.kind, rows)
    return rows.residual


def layer(of: Layer, x: Tensor, tensors: Tensors, context: Context | Past, layer_input: Tensor | None = None) -> Tensor:
    """The hidden states float32 [..., rows, hidden] after a layer, with `layer_input` by token, if it has any."""
    return run(lower_layer(of), LayerRows(x, tensors, context, layer_input), "start", "mixer", "feed", "end")


def after_mixer(
    of: Layer, x: Tensor, tensors: Tensors, context: Context | Past, inputs: Tensor | None = None
) -> Tensor:
    """The hidden states after the first half of a layer; the mixer may be given other `inputs` than x with its norm."""
    rows, program = LayerRows(x, tensors, context), lower_layer(of)
    if inputs is not None:
        first, *rest = program
        assert isinstance(first.kind, Normalise)
        rows.buffers[first.kind.out.name], program = inputs, tuple(rest)
    return run(program, rows, "mixer")


def after_feed(of: Layer, x: Tensor, tensors: Tensors, mix: Mixture | None = None) -> Tensor:
    """The hidden states after the second half of a layer, before its end; `mix` replaces the reference's mixture."""
    return run(lower_layer(of), LayerRows(x, tensors, mix=mix), "feed")


def at_end(of: Layer, x: Tensor, tensors: Tensors, layer_input: Tensor | None = None) -> Tensor:
    """The hidden states at the end of a layer, with `layer_input` float32 [..., rows, values], if any."""
    return run(lower_layer(of), LayerRows(x, tensors, inputs=layer_input), "end")


def attention(of: Attention, x: Tensor, tensors: Tensors, context: Context) -> Tensor:
    """Attention of rows float32 [..., rows, inputs] over the KV entries of `context`: float32 [..., rows, hidden]."""
    op = Attend(of, Buffer("projected", sum(of.qkv.outputs), summed=True), Buffer("mixed", of.out.inputs))
    rows = LayerRows(x, tensors, context, buffers={op.source.name: tensors.product(x, of.qkv)})
    REFERENCE.run(op, rows)
    return tensors.product(rows.buffers[op.out.name], of.out)


def embed(of: Recipe, tokens: Tensor, tensors: ModelTensors) -> Tensor:
    """The hidden states float32 [..., hidden] of tokens int64 [...] before the first layer."""
    hidden: Tensor = REFERENCE.run(lower(of).embed, tokens, tensors)
    return hidden


def token_inputs(of: Recipe, x: Tensor, tokens: Tensor, tensors: ModelTensors) -> Tensor | None:
    """The inputs of all layers, float32 [..., layers, values], of tokens int64 [...] with embeddings x, if any."""
    op = lower(of).inputs
    return None if op is None else REFERENCE.run(op, x, tokens, tensors)


def hidden_states(
    of: Recipe, tokens: Tensor, tensors: ModelTensors, run: Callable[..., Tensor] = layer
) -> list[Tensor]:
    """Hidden states of whole texts, int64 [..., rows], before the first layer and after each.

    `run` is called as `layer`, whose result it gives.
    """
    states = [embed(of, tokens, tensors)]
    by_layer = token_inputs(of, states[0], tokens, tensors)
    entries_of: dict[int, tuple[Tensor, ...]] = {}
    for index, each in enumerate(of.layers):

        def entries(*new: Tensor, owner: int = index if each.share is None else each.share) -> Any:
            return entries_of.setdefault(owner, new)

        context = whole(each.mixer, tokens.shape, tokens.device)
        context = context._replace(entries=entries) if isinstance(context, Context) else context
        states.append(run(each, states[-1], tensors, context, None if by_layer is None else by_layer[..., index, :]))
    return states


def logits(of: Recipe, x: Tensor, tensors: Tensors) -> Tensor:
    """Logits float32 [..., vocab] of hidden states float32 [..., hidden] after the last layer."""
    scores: Tensor = REFERENCE.run(lower(of).head, x, tensors)
    return scores


def whole(of: Attention | ShortConv | Delta, shape: tuple[int, ...], device: torch.device) -> Context | Past:
    """The context of whole texts of tokens of `shape` [..., rows]: causal attention within the window, or no past."""
    if isinstance(of, Delta):
        return empty(of, shape[:-1], device)
    if isinstance(of, ShortConv):
        return Context(None, lambda key, value: (key, value))
    rotation, rows = None, shape[-1]
    if of.rope is not None:
        cos, sin = (table.to(device) for table in tables(of.rope, of.rope.width, rows))
        rotation = cos, sin
    seen = torch.ones(rows, rows, dtype=torch.bool, device=device).tril()
    seen, temper = seen.triu(1 - of.window) if of.window else seen, tempers(of, rows)
    tempered = None if temper is None else temper[:, None].to(device)
    return Context(rotation, lambda key, value: (key, value), seen, temper=tempered)
