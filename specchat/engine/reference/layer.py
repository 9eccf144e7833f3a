"""The layers of a recipe in plain torch: float32, differentiable, any leading dimensions.

The caller chooses how many rows run together; `decoder.py` runs each alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, pad, silu

from specchat.engine.model.norm import capped, unscaled
from specchat.engine.model.rope import tables, tempers
from specchat.engine.recipe import (
    Activation,
    Attention,
    Delta,
    Experts,
    Gated,
    Layer,
    Norm,
    PerLayer,
    Recipe,
    ShortConv,
)
from specchat.engine.reference.delta import Past, delta, empty
from specchat.engine.reference.protocols import ModelTensors, Tensors

GATES: dict[Activation, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": lambda gate, up: silu(gate) * up,
    "gelu_tanh": lambda gate, up: gelu(gate, approximate="tanh") * up,
    "clamped_swiglu": lambda gate, up: _swish(gate.clamp(max=7.0)) * (up.clamp(-7.0, 7.0) + 1),
}


def _swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


Attend = Callable[[Attention, Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(attention, queries, keys, values, seen) -> the values that the queries mix; shapes as in `attended`."""
Mix = Callable[[Experts, Tensor], Tensor]
"""(experts, inputs float32 [rows, inputs]) -> the mixture's output float32 [rows, hidden]."""


class Context(NamedTuple):
    """Positions of the rows of a pass, and the KV entries that they attend to.

    Attributes:
        rotation: cosine and signed sine float32 [rows, width] at the rows' positions (`rope.tables`); None where
            attention has no rope.
        entries: maps the rows' own keys and values, float32 [..., kv_heads, rows, head_dim], to those of all attended
            positions, float32 [..., kv_heads, positions, head_dim]; without arguments where another layer made them.
        seen: bool [rows, positions], True where a row attends; None: all.
        temper: factors on the queries, float32 [rows, 1]; None: 1.
        attend: maps queries and what `entries` returned to the mixed values, as `attended`.
    """

    rotation: tuple[Tensor, Tensor] | None
    entries: Callable[..., tuple[Tensor, Tensor]]
    seen: Tensor | None = None
    attend: Attend | None = None
    temper: Tensor | None = None


def layer(of: Layer, x: Tensor, tensors: Tensors, context: Context | Past, own: Tensor | None = None) -> Tensor:
    """The hidden states float32 [..., rows, hidden] after a layer; `own` as in `at_end`."""
    return at_end(of, after_feed(of, after_mixer(of, x, tensors, context), tensors), tensors, own)


def after_mixer(
    of: Layer, x: Tensor, tensors: Tensors, context: Context | Past, inputs: Tensor | None = None
) -> Tensor:
    """The hidden states after the first half of a layer; the mixer may be given other `inputs` than x with its norm."""
    inputs = norm(of.pre_mixer, x, tensors) if inputs is None else inputs
    if isinstance(context, Past):
        assert isinstance(of.mixer, Delta)
        mixed = delta(of.mixer, inputs, tensors, context)
    elif isinstance(of.mixer, ShortConv):
        mixed = short_conv(of.mixer, inputs, tensors, context)
    else:
        mixed = attention(of.attention, inputs, tensors, context)
    return x.add(norm(of.post_mixer, mixed, tensors), alpha=of.residual)


def after_feed(of: Layer, x: Tensor, tensors: Tensors, mix: Mix | None = None) -> Tensor:
    """The hidden states after the second half of a layer, before its end; `mix` replaces `mixture`."""
    inputs = norm(of.pre_feed, x, tensors)
    if not isinstance(of.feed, Experts):
        fed = gated(of.feed, inputs, tensors)
    else:
        fed = mixture(of.feed, inputs, tensors) if mix is None else mix(of.feed, inputs)
    return x.add(norm(of.post_feed, fed, tensors), alpha=of.residual)


def at_end(of: Layer, x: Tensor, tensors: Tensors, own: Tensor | None = None) -> Tensor:
    """The hidden states at the end of a layer, with its `own` inputs float32 [..., rows, values], if any."""
    if of.input is not None:
        assert own is not None
        made = tensors.product(GATES[of.gated.activation](tensors.product(x, of.input.gate), own), of.input.down)
        x = x + norm(of.input.norm, made, tensors)
    return x * tensors.vector(of.scalar) if of.scalar else x


def norm(of: Norm | None, x: Tensor, tensors: Tensors) -> Tensor:
    """Root mean square norm of each `of.size` values of x [..., values]; x itself without a norm."""
    if of is None:
        return x
    if x.shape[-1] == of.size:
        return tensors.norm(of)(x)
    return tensors.norm(of)(x.unflatten(-1, (-1, of.size))).flatten(-2)


def attention(of: Attention, x: Tensor, tensors: Tensors, context: Context) -> Tensor:
    """Attention of rows float32 [..., rows, inputs] over the KV entries of `context`: float32 [..., rows, hidden]."""
    made, size = tensors.product(x, of.qkv), of.heads * of.head_dim * (1 + of.gated)
    query, gate = made.narrow(-1, 0, size), None
    if of.gated:
        query, gate = (part.flatten(-2) for part in query.unflatten(-1, (of.heads, -1)).chunk(2, -1))
    query = _heads(of, norm(of.query_norm, query, tensors))
    if context.rotation is not None:
        query = turned(query, *context.rotation)
    if context.temper is not None:
        query = query * context.temper
    entries = made.narrow(-1, size, made.shape[-1] - size)
    own = _entries(of, entries, tensors, context.rotation) if of.share is None else ()
    keys, values = context.entries(*own)
    sinks = tensors.vector(of.sinks) if of.sinks else None
    if sinks is None and context.attend is not None:
        mixed = context.attend(of, query, keys, values, context.seen)
    else:
        mixed = attended(of, query, keys, values, context.seen, sinks)
    mixed = mixed.transpose(-2, -3).flatten(-2)
    return tensors.product(mixed if gate is None else mixed * gate.sigmoid(), of.out)


def short_conv(of: ShortConv, x: Tensor, tensors: Tensors, context: Context) -> Tensor:
    """A short convolution of rows float32 [..., rows, inputs] after those of `context`: float32 [..., rows, hidden]."""
    before, after, z = tensors.product(x, of.mix).chunk(3, -1)
    halves = context.entries(*((before * z).unsqueeze(-3).chunk(2, -1)))
    inputs, taps = torch.cat(halves, -1).squeeze(-3), tensors.vector(of.convolution)[:, 0]
    rows = x.shape[-2]
    inputs = pad(inputs, (0, 0, max(0, rows + of.taps - 1 - inputs.shape[-2]), 0))[..., 1 - of.taps - rows :, :]
    seen = [inputs[..., tap : tap + rows, :] * taps[:, tap] for tap in range(of.taps)]
    return tensors.product(after * torch.stack(seen).sum(0), of.out)


def attended(
    of: Attention, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None, sinks: Tensor | None = None
) -> Tensor:
    """The values float32 [..., heads, rows, head_dim] that queries of that shape mix; the rest as in `Context`.

    `sinks` float32 [heads] as in `Attention`.
    """
    # Query heads that share keys are rows of one product.
    grouped = query.unflatten(-3, (of.kv_heads, -1))
    scores = of.scale * (grouped.flatten(-3, -2) @ keys.transpose(-1, -2))
    if seen is not None:
        by_row = scores.unflatten(-2, grouped.shape[-3:-1])
        scores = by_row.where(seen, float("-inf")).flatten(-3, -2)
    if sinks is None:
        weights = scores.softmax(-1)
    else:
        beside = sinks.view(of.kv_heads, -1, 1).expand(*grouped.shape[-4:-1]).flatten(-2)[..., None]
        weights = torch.cat([scores, beside.expand(*scores.shape[:-1], 1)], -1).softmax(-1)[..., :-1]
    mixed: Tensor = (weights @ values).unflatten(-2, grouped.shape[-3:-1])
    return mixed.flatten(-4, -3)


def keys_and_values(
    of: Attention, x: Tensor, tensors: Tensors, rotation: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The entries float32 [..., kv_heads, rows, head_dim] of rows float32 [..., rows, inputs] that ask nothing."""
    return _entries(of, tensors.product(x, of.key_value), tensors, rotation)


def _entries(
    of: Attention, made: Tensor, tensors: Tensors, rotation: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The entries of keys and values, concatenated."""
    key, value = made.chunk(2, -1)
    key = _heads(of, norm(of.key_norm, key, tensors))
    return key if rotation is None else turned(key, *rotation), _heads(of, norm(of.value_norm, value, tensors))


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


def gated(of: Gated, x: Tensor, tensors: Tensors) -> Tensor:
    """A gated MLP: float32 [..., inputs] -> float32 [..., hidden]."""
    gate, up = tensors.product(x, of.gate_up).chunk(2, -1)
    return tensors.product(GATES[of.activation](gate, up), of.down)


def mixture(of: Experts, x: Tensor, tensors: Tensors) -> Tensor:
    """A mixture of experts: float32 [..., inputs] -> float32 [..., hidden]; only the chosen ones are multiplied."""
    own, rows = of.apart, x.reshape(-1, x.shape[-1])
    shares, chosen = routed(of, norm(own.router, rows, tensors) if own else rows, tensors)
    inputs, made = norm(own.pre_experts, rows, tensors) if own else rows, torch.zeros_like(rows)
    for number in chosen.unique().tolist():
        row, rank = (chosen == number).nonzero(as_tuple=True)
        made[row] += shares[row, rank, None] * gated(of.expert(number), inputs[row], tensors)
    if of.shared:
        beside = gated(of.shared, norm(own.pre_shared, rows, tensors) if own else rows, tensors)
        if of.shared_gate:
            beside = tensors.product(rows, of.shared_gate).sigmoid() * beside
        if own:
            made, beside = norm(own.post_experts, made, tensors), norm(own.post_shared, beside, tensors)
        made = made + beside
    return made.view(x.shape)


def routed(of: Experts, x: Tensor, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """The shares of the chosen experts of rows float32 [rows, inputs], float32 [rows, top], and these, int64."""
    scores = tensors.product(x, of.router)
    shares = scores.sigmoid() if of.sigmoid else scores.softmax(-1)
    ranks = shares + tensors.vector(of.correction) if of.correction else shares
    groups, kept = of.groups
    if kept < groups:
        grouped = ranks.unflatten(-1, (groups, -1))
        others = ordered(grouped.topk(2).values.sum(-1))[:, kept:]
        ranks = grouped.scatter(1, others[..., None].expand(-1, -1, grouped.shape[-1]), float("-inf")).flatten(1)
    chosen = ordered(ranks)[:, : of.top]
    shares = shares.gather(1, chosen)
    if of.renormalised:
        shares = shares / shares.sum(-1, keepdim=True)
    shares = shares if of.factor == 1 else of.factor * shares
    return shares * tensors.vector(of.factors)[chosen] if of.factors else shares, chosen


def ordered(ranks: Tensor) -> Tensor:
    """Places of the values in each row, the largest first, of equal ones the lower: int64 [rows, values]."""
    return ranks.sort(dim=-1, descending=True, stable=True).indices


def embed(of: Recipe, tokens: Tensor, tensors: ModelTensors) -> Tensor:
    """The hidden states float32 [..., hidden] of tokens int64 [...] before the first layer."""
    return unscaled(of.embed_scale * tensors.rows(of.embed, tokens), of.embed_eps)


def inputs(of: PerLayer, x: Tensor, tokens: Tensor, tensors: ModelTensors) -> Tensor:
    """The inputs of all layers, float32 [..., layers, values], of tokens int64 [...] with embeddings x."""
    made = norm(of.norm, tensors.product(x, of.project), tensors) + of.scale * tensors.rows(of.table, tokens)
    by_layer: Tensor = made.unflatten(-1, (-1, of.norm.size))
    return by_layer


def hidden_states(
    of: Recipe, tokens: Tensor, tensors: ModelTensors, run: Callable[..., Tensor] = layer
) -> list[Tensor]:
    """Hidden states of whole texts, int64 [..., rows], before the first layer and after each.

    `run` is called as `layer`, whose result it gives.
    """
    states = [embed(of, tokens, tensors)]
    own = inputs(of.per_layer, states[0], tokens, tensors) if of.per_layer else None
    made: dict[int, tuple[Tensor, ...]] = {}
    for index, each in enumerate(of.layers):

        def entries(*new: Tensor, place: int = index if each.share is None else each.share) -> Any:
            return made.setdefault(place, new)

        context = whole(each.mixer, tokens.shape, tokens.device)
        context = context._replace(entries=entries) if isinstance(context, Context) else context
        states.append(run(each, states[-1], tensors, context, None if own is None else own[..., index, :]))
    return states


def logits(of: Recipe, x: Tensor, tensors: Tensors) -> Tensor:
    """Logits float32 [..., vocab] of hidden states float32 [..., hidden] after the last layer."""
    return capped(of.logit_scale * tensors.product(norm(of.norm, x, tensors), of.head), of.cap)


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
