"""The operations of a pass in plain torch: float32, differentiable, any leading dimensions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, pad, relu, silu, softplus

from specchat.engine.model.norm import capped, unscaled
from specchat.engine.program.ops import (
    Add,
    Advance,
    Attend,
    Convolve,
    Embed,
    Expand,
    GatedProduct,
    GateInput,
    Head,
    MakeInputs,
    Multiply,
    Normalise,
    Scale,
)
from specchat.engine.recipe import Activation, Attention, Experts, Gated, Norm
from specchat.engine.reference.delta import Past, step_rows
from specchat.engine.reference.protocols import ModelTensors, Tensors

GATES: dict[Activation, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": lambda gate, up: silu(gate) * up,
    "gelu_tanh": lambda gate, up: gelu(gate, approximate="tanh") * up,
    "clamped_swiglu": lambda gate, up: _swish(gate.clamp(max=7.0)) * (up.clamp(-7.0, 7.0) + 1),
    "relu2": lambda gate, up: relu(gate).square() * up,
}


def _swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def xielu(x: Tensor, p: Tensor, n: Tensor, beta: Tensor, eps: Tensor) -> Tensor:
    """Activation of x [...], as in `recipe.Gated.curve`."""
    below = (beta + softplus(n)) * (torch.expm1(torch.minimum(x, eps)) - x)
    return torch.where(x > 0, softplus(p) * x * x, below) + beta * x


Attended = Callable[[Attention, Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(attention, queries, keys, values, seen) -> the values that the queries mix; shapes as in `attended`."""
Mixture = Callable[[Experts, Tensor], Tensor]
"""(experts, inputs float32 [rows, inputs]) -> the mixture's output float32 [rows, hidden]."""


class Context(NamedTuple):
    """Positions of the rows of a pass, and the KV entries that they attend to.

    Attributes:
        rotation: cosine and signed sine float32 [rows, width] at the rows' positions (`rope.tables`); None where
            attention has no rope.
        entries: maps the rows' own keys and values, float32 [..., kv_heads, rows, head_dim], to those of all attended
            positions, float32 [..., kv_heads, positions, head_dim]; without arguments where another layer made them.
        seen: bool [rows, positions], True where a row attends; None: all.
        attend: maps queries and what `entries` returned to the mixed values, as `attended`.
        temper: factors on the queries, float32 [rows, 1]; None: 1.
    """

    rotation: tuple[Tensor, Tensor] | None
    entries: Callable[..., tuple[Tensor, Tensor]]
    seen: Tensor | None = None
    attend: Attended | None = None
    temper: Tensor | None = None


@dataclass
class LayerRows:
    """Rows on their way through a layer.

    Attributes:
        residual: the residual stream, float32 [..., rows, hidden].
        tensors: the tensors that operations name.
        context: positions and entries of attention or a short convolution, or the past of recurrent states.
        inputs: the layer's inputs by token, float32 [..., rows, values], if it has any.
        mix: replaces `mixture`.
        buffers: what operations wrote, float32 [..., rows, width], by the buffer's name.
    """

    residual: Tensor
    tensors: Tensors
    context: Context | Past | None = None
    inputs: Tensor | None = None
    mix: Mixture | None = None
    buffers: dict[str, Tensor] = field(default_factory=dict)


def embed(tokens: Tensor, tensors: ModelTensors, op: Embed) -> Tensor:
    return unscaled(op.scale * tensors.rows(op.table, tokens), op.eps)


def token_inputs(x: Tensor, tokens: Tensor, tensors: ModelTensors, op: MakeInputs) -> Tensor:
    of = op.of
    combined = norm(of.norm, tensors.product(x, of.project), tensors) + of.scale * tensors.rows(of.table, tokens)
    by_layer: Tensor = combined.unflatten(-1, (-1, of.norm.size))
    return by_layer


def normalise(rows: LayerRows, op: Normalise) -> None:
    rows.buffers[op.out.name] = norm(op.norm, rows.residual, rows.tensors)


def product(rows: LayerRows, op: Multiply) -> None:
    rows.buffers[op.out.name] = rows.tensors.product(rows.buffers[op.source.name], op.matrix)


def gated_product(rows: LayerRows, op: GatedProduct) -> None:
    rows.buffers[op.out.name] = activated(op.of, rows.buffers[op.source.name], rows.tensors)


def expand(rows: LayerRows, op: Expand) -> None:
    of, tensors, heads, size = op.of, rows.tensors, op.attention.heads, op.attention.head_dim
    rank, rotated = of.key_value.inputs, op.attention.rotary_dim
    source = rows.buffers[op.source.name]
    query, latent, shared = source.split([source.shape[-1] - rank - rotated, rank, rotated], -1)
    if of.query is not None:
        query = tensors.product(norm(of.query_norm, query, tensors), of.query)
    parts = tensors.product(norm(of.key_value_norm, latent, tensors), of.key_value)
    plain, value = parts.split([heads * (size - rotated), parts.shape[-1] - heads * (size - rotated)], -1)
    query, plain, value = (part.unflatten(-1, (heads, -1)) for part in (query, plain, value))
    query = torch.cat([_halved(query[..., size - rotated :], of.interleaved), query[..., : size - rotated]], -1)
    shared = _halved(shared, of.interleaved)[..., None, :].expand(*plain.shape[:-1], rotated)
    whole = query, torch.cat([shared, plain], -1), pad(value, (0, size - value.shape[-1]))
    rows.buffers[op.out.name] = torch.cat([part.flatten(-2) for part in whole], -1)


def _halved(x: Tensor, interleaved: bool) -> Tensor:
    """Values to rotate [..., values]: of neighbours' pairs the first of all, then the second."""
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) if interleaved else x


def attend(rows: LayerRows, op: Attend) -> None:
    of, tensors, context, projected = op.of, rows.tensors, rows.context, rows.buffers[op.source.name]
    assert isinstance(context, Context)
    size = of.heads * of.head_dim * (1 + of.gated)
    query, gate = projected.narrow(-1, 0, size), None
    if of.gated:
        query, gate = (part.flatten(-2) for part in query.unflatten(-1, (of.heads, -1)).chunk(2, -1))
    query = _rotated(of, query, tensors, context.rotation, of.query_norm)
    if context.temper is not None:
        query = query * context.temper
    entries = projected.narrow(-1, size, projected.shape[-1] - size)
    new = () if of.share is not None else _entries(of, entries, tensors, context.rotation)
    keys, values = context.entries(*new)
    if of.sinks or of.score_cap or context.attend is None:
        mixed = attended(of, query, keys, values, context.seen, tensors.vector(of.sinks) if of.sinks else None)
    else:
        mixed = context.attend(of, query, keys, values, context.seen)
    mixed = mixed[..., : of.value_dim].transpose(-2, -3).flatten(-2)
    rows.buffers[op.out.name] = mixed if gate is None else mixed * gate.sigmoid()


def convolve(rows: LayerRows, op: Convolve) -> None:
    of, context = op.of, rows.context
    assert isinstance(context, Context)
    before, after, z = rows.buffers[op.source.name].chunk(3, -1)
    halves = context.entries(*((before * z).unsqueeze(-3).chunk(2, -1)))
    inputs, taps = torch.cat(halves, -1).squeeze(-3), rows.tensors.vector(of.convolution)[:, 0]
    count = z.shape[-2]
    inputs = pad(inputs, (0, 0, max(0, count + of.taps - 1 - inputs.shape[-2]), 0))[..., 1 - of.taps - count :, :]
    seen = [inputs[..., tap : tap + count, :] * taps[:, tap] for tap in range(of.taps)]
    rows.buffers[op.out.name] = after * torch.stack(seen).sum(0)


def advance(rows: LayerRows, op: Advance) -> None:
    assert isinstance(rows.context, Past)
    products, gates = rows.buffers[op.source.name], rows.buffers[op.gates.name] if op.gates else None
    rows.buffers[op.out.name] = step_rows(op.of, products, gates, rows.tensors, rows.context)


def gate_input(rows: LayerRows, op: GateInput) -> None:
    assert rows.inputs is not None
    gate = rows.tensors.product(rows.residual, op.of.gate)
    rows.buffers[op.out.name] = GATES[op.activation](gate, rows.inputs)


def add(rows: LayerRows, op: Add) -> None:
    update = norm(op.post, rows.buffers[op.source.name], rows.tensors)
    rows.residual = rows.residual.add(update, alpha=op.factor)


def scale(rows: LayerRows, op: Scale) -> None:
    rows.residual = rows.residual * rows.tensors.vector(op.vector)


def head(x: Tensor, tensors: Tensors, op: Head) -> Tensor:
    return capped(op.scale * tensors.product(norm(op.norm, x, tensors), op.matrix), op.cap)


def attended(
    of: Attention,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    seen: Tensor | None,
    sinks: Tensor | None = None,
) -> Tensor:
    """The values float32 [..., heads, rows, head_dim] that queries of that shape mix; the rest as in `Context`.

    `sinks` float32 [heads] as in `Attention`.
    """
    # Query heads that share keys are rows of one product.
    grouped = query.unflatten(-3, (of.kv_heads, -1))
    scores = capped(of.scale * (grouped.flatten(-3, -2) @ keys.transpose(-1, -2)), of.score_cap)
    if seen is not None:
        by_row = scores.unflatten(-2, grouped.shape[-3:-1])
        scores = by_row.where(seen, float("-inf")).flatten(-3, -2)
    if sinks is None:
        weights = scores.softmax(-1)
    else:
        sink_scores = sinks.view(of.kv_heads, -1, 1).expand(*grouped.shape[-4:-1]).flatten(-2)[..., None]
        weights = torch.cat([scores, sink_scores.expand(*scores.shape[:-1], 1)], -1).softmax(-1)[..., :-1]
    mixed: Tensor = (weights @ values).unflatten(-2, grouped.shape[-3:-1])
    return mixed.flatten(-4, -3)


def norm(of: Norm | None, x: Tensor, tensors: Tensors) -> Tensor:
    """Root mean square norm of each `of.size` values of x [..., values]; x itself without a norm."""
    if of is None:
        return x
    if x.shape[-1] == of.size:
        return tensors.norm(of)(x)
    return tensors.norm(of)(x.unflatten(-1, (-1, of.size))).flatten(-2)


def gated_mlp(of: Gated, x: Tensor, tensors: Tensors) -> Tensor:
    """An MLP: float32 [..., inputs] -> float32 [..., hidden]."""
    return tensors.product(activated(of, x, tensors), of.down)


def activated(of: Gated, x: Tensor, tensors: Tensors) -> Tensor:
    """The values between an MLP's products: float32 [..., inputs] -> float32 [..., width]."""
    sums = tensors.product(x, of.gate_up)
    if of.curve:
        return xielu(sums, *map(tensors.vector, of.curve))
    gate, up = (sums, torch.ones_like(sums)) if of.ungated else sums.chunk(2, -1)
    return GATES[of.activation](gate, up)


def keys_and_values(
    of: Attention, x: Tensor, tensors: Tensors, rotation: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The entries float32 [..., kv_heads, rows, head_dim] of rows float32 [..., rows, inputs] that ask nothing."""
    return _entries(of, tensors.product(x, of.key_value), tensors, rotation)


def _entries(
    of: Attention, projected: Tensor, tensors: Tensors, rotation: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    key, value = projected.chunk(2, -1)
    return _rotated(of, key, tensors, rotation, of.key_norm), _heads(of, norm(of.value_norm, value, tensors))


def _rotated(
    of: Attention, x: Tensor, tensors: Tensors, rotation: tuple[Tensor, Tensor] | None, of_heads: Norm | None
) -> Tensor:
    """Heads of queries or keys, float32 [..., rows, heads * head_dim], normed and rotated."""
    heads = _heads(of, x if of.late_norms else norm(of_heads, x, tensors))
    heads = heads if rotation is None else turned(heads, *rotation)
    return norm(of_heads, heads, tensors) if of.late_norms else heads


def _heads(of: Attention, x: Tensor) -> Tensor:
    """Heads float32 [..., heads, rows, head_dim] of rows float32 [..., rows, heads * head_dim]."""
    split: Tensor = x.unflatten(-1, (-1, of.head_dim))
    return split.transpose(-2, -3)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys float32 [..., rows, head_dim], with the first `width` values of each rotated."""
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat([turned(x[..., :width], cos, sin), x[..., width:]], -1)
    return x * cos + x.roll(width // 2, -1) * sin
