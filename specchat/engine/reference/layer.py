"""Layers of a recipe in plain torch, over any number of rows together; `decoder.py` runs each row alone."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from specchat.engine.model.kv_entries import loaded, stored
from specchat.engine.model.rope import tables, tempers
from specchat.engine.program.lower import lower, lower_layer
from specchat.engine.program.ops import Half, Normalise, Op
from specchat.engine.program.table import OpTable
from specchat.engine.recipe import Attention, Delta, Layer, Recipe, ShortConv
from specchat.engine.reference import mixture, ops
from specchat.engine.reference.delta import Past, empty
from specchat.engine.reference.ops import Context, LayerRows
from specchat.engine.reference.protocols import ModelTensors, Tensors

REFERENCE = OpTable(
    "the reference",
    *(ops.embed, ops.token_inputs, ops.normalise, ops.product, ops.gated_product, ops.expand, ops.attend),
    *(ops.convolve, ops.advance, mixture.mix, ops.gate_input, ops.add, ops.scale, ops.head),
    elsewhere=("causal", "int8_cache", "latent", "mutual", "temper", "window"),
)
"""Windows, attention to later rows, also of pictures, tempered queries and the form of KV entries are in the rows'
context; latents are another operation's."""

HALVES: tuple[Half, ...] = get_args(Half)


def run(program: tuple[Op, ...], rows: LayerRows, *halves: Half) -> Tensor:
    """The residual stream float32 [..., rows, hidden] after a layer's operations of `halves`."""
    for op in program:
        if op.half in halves:
            REFERENCE.run(op.kind, rows)
    return rows.residual


def layer(
    of: Layer,
    x: Tensor,
    tensors: Tensors,
    context: Context | Past,
    own: Tensor | None = None,
    inputs: Tensor | None = None,
) -> Tensor:
    """The hidden states float32 [..., rows, hidden] after a layer, with its `own` inputs by token, if it has any.

    `inputs` as in `begun`.
    """
    rows = LayerRows(x, tensors, context, own)
    return run(begun(lower_layer(of), rows, inputs), rows, *HALVES)


def begun(program: tuple[Op, ...], rows: LayerRows, inputs: Tensor | None) -> tuple[Op, ...]:
    """The operations of a layer without its first norm, instead of which the mixer has `inputs`; None: all of them."""
    if inputs is None:
        return program
    first, *rest = program
    assert isinstance(first.kind, Normalise)
    rows.buffers[first.kind.out.name] = inputs
    return tuple(rest)


def embed(of: Recipe, tokens: Tensor, tensors: ModelTensors) -> Tensor:
    """The hidden states float32 [..., hidden] of tokens int64 [...] before the first layer."""
    made: Tensor = REFERENCE.run(lower(of).embed, tokens, tensors)
    return made


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
    own = token_inputs(of, states[0], tokens, tensors)
    held: dict[int, tuple[Tensor, ...]] = {}
    for index, each in enumerate(of.layers):

        def entries(*new: Tensor, layer: Layer = each, owner: int = index if each.share is None else each.share) -> Any:
            attends = new and isinstance(layer.mixer, Attention)
            return held.setdefault(owner, read_entries(layer.attention, *new) if attends else new)

        context = whole(each.mixer, tokens.shape, tokens.device)
        context = context._replace(entries=entries) if isinstance(context, Context) else context
        states.append(run(each, states[-1], tensors, context, None if own is None else own[..., index, :]))
    return states


def logits(of: Recipe, x: Tensor, tensors: Tensors) -> Tensor:
    """Logits float32 [..., vocab] of hidden states float32 [..., hidden] after the last layer."""
    made: Tensor = REFERENCE.run(lower(of).head, x, tensors)
    return made


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
    return Context(rotation, partial(read_entries, of), seen, temper=tempered)


def read_entries(of: Attention, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """New keys and values float32 [..., head_dim] as later tokens read them from a cache."""
    key, value = (loaded(stored(part, of.block), of.head_dim) for part in (key, value))
    return key, value
