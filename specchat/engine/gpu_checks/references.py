"""Results of the kernels in torch: in float64 where their arguments are."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.kernels.activation import Activation, Curve
from specchat.engine.kernels.attention import PLAIN, Scoring
from specchat.engine.kernels.norm import NormOf
from specchat.engine.kernels.rope import RopeNorms
from specchat.engine.kernels.route import Rule
from specchat.engine.model.norm import RMSNorm, capped
from specchat.engine.recipe import Delta, Matrix, Norm
from specchat.engine.reference.delta import empty, step_rows
from specchat.engine.reference.mixture import left_out, ordered
from specchat.engine.reference.ops import GATES, turned, xielu


def reference_embed(tokens: Tensor, table: Tensor, scale: float = 1.0, eps: float | None = None) -> Tensor:
    """Output of `embed`: float32 [len(tokens), hidden]."""
    known = (tokens >= 0) & (tokens < table.shape[0])
    found = torch.where(known[:, None], table[tokens.where(known, 0).long()].float() * scale, 0.0)
    return found if eps is None else found * torch.rsqrt(found.square().mean(-1, keepdim=True) + eps)


def reference_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Norm of each row, in the precision of `x`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def reference_add_rms_norm(
    residual: Tensor,
    partials: Tensor | None,
    weight: Tensor | None,
    eps: float,
    after: tuple[Tensor, float] | None = None,
    factor: float = 1.0,
    scalar: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Residual stream after the sum, and its norm, in the precision of `residual`: both [rows, H]."""
    if partials is not None:
        added = partials.to(residual).sum(0)
        residual = residual + factor * (added if after is None else reference_norm(added, *after))
    if scalar is not None:
        residual = residual * scalar.to(residual)
    return residual, residual if weight is None else reference_norm(residual, weight, eps)


def reference_gate_mul(partials: Tensor, activation: Activation = "silu", curve: Curve | None = None) -> Tensor:
    """Output of `gate_mul` with gates, in the precision of `partials`: [rows, I]."""
    gate, up = partials.sum(0).chunk(2, -1)
    if curve is not None:
        return xielu(gate, *(one.to(gate) for one in curve)) * up
    return GATES[activation](gate, up)


def reference_make_inputs(tokens: Tensor, table: Tensor, partials: Tensor, norm: NormOf, scale: float) -> Tensor:
    """Output of `make_inputs`, in float64: [rows, layers, size]."""
    x = reference_norm(partials.double().sum(0).unflatten(-1, (-1, len(norm.weight))), norm.weight.double(), norm.eps)
    return x.add_(table[tokens.long().clamp(0, len(table) - 1)].view_as(x), alpha=scale)


def reference_gate_input(partials: Tensor, inputs: Tensor, activation: Activation) -> Tensor:
    """Output of `gate_input`, in the precision of `partials`: [rows, size]."""
    return reference_gate_mul(torch.cat((partials.sum(0), inputs.to(partials)), -1)[None], activation)


def reference_rope(
    partials: Tensor,
    norms: RopeNorms,
    tables: tuple[Tensor, Tensor],
    positions: Tensor,
    heads: int,
    kv_heads: int,
    temper: Tensor | None = None,
    gated: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [rows, heads, D] and keys [rows, kv, D], and values [rows, kv, D], in float64."""
    queries = heads * (1 + gated)
    x = partials.double().sum(0).unflatten(-1, (queries + 2 * kv_heads, -1))
    query, key, value = x.split((queries, kv_heads, kv_heads), 1)
    query, key, value = (
        y if norm is None else _of_heads(y, *norm)
        for y, norm in zip((query[:, :: 1 + gated], key, value), norms[:3], strict=True)
    )
    at = positions.long()
    query, key = (turned(y, *(table[at, None].double() for table in tables)) for y in (query, key))
    return query if temper is None else query * temper[at, None, None].double(), key, value


def _of_heads(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm of heads [rows, heads, D], of each or of all together."""
    joined = x if len(weight) == x.shape[-1] else x.flatten(1)
    return reference_norm(joined, weight.double(), eps).view_as(x)


def reference_attend(
    query: Tensor, keys: Tensor, values: Tensor, start: int, tree: list[int] | None, of: Scoring = PLAIN
) -> Tensor:
    """Output of `attend`, in the precision of its arguments: [rows, heads * D]."""
    (rows, heads, dim), kv_heads = query.shape, len(keys)
    outputs = []
    for row in range(rows):
        mask = 2 ** (row + 1) - 1 if tree is None else tree[row]
        slots = [*range(start), *(start + j for j in range(64) if mask >> j & 1)][-of.window :]
        q = query[row].view(kv_heads, heads // kv_heads, dim)
        scores = capped(q @ keys[:, slots].transpose(1, 2) * dim**-0.5, of.cap)
        beside = scores.new_full((heads,), float("-inf")) if of.sinks is None else of.sinks.to(scores)
        weights = torch.cat((scores, beside.view(kv_heads, -1, 1)), -1).softmax(-1)[..., :-1]
        outputs.append((weights @ values[:, slots]).reshape(heads * dim))
    mixed = torch.stack(outputs)
    if of.gates is not None:
        queries_and_gates = of.gates.to(mixed).sum(0)[:, : 2 * heads * dim].unflatten(-1, (heads, 2, dim))
        mixed *= queries_and_gates[:, :, 1].flatten(1).sigmoid()
    return mixed


def reference_route(scores: Tensor, rule: Rule, top: int) -> tuple[Tensor, Tensor]:
    """Shares [rows, top] of the chosen experts, and these, int64, of the summed scores [rows, count].

    A shared expert comes last, and counts in `top`.
    """
    if rule.shared:
        gates, scores = (scores[:, -1:], scores[:, :-1]) if rule.shared == "gated" else (None, scores)
        shares, chosen = reference_route(scores, replace(rule, shared=None), top - 1)
        own = torch.ones_like(shares[:, :1]) if gates is None else gates.sigmoid()
        last = torch.full_like(chosen[:, :1], scores.shape[1])
        return torch.cat([shares, own], 1), torch.cat([chosen, last], 1)
    share = scores.sigmoid() if rule.sigmoid else scores.softmax(-1)
    rank = share if rule.correction is None else share + rule.correction
    chosen = ordered(left_out(rank, rule.groups, rule.by_best))[:, :top]
    share = share.gather(1, chosen)
    if rule.renormalised:
        share = share / share.sum(-1, keepdim=True)
    if rule.factors is not None:
        share = share * rule.factors[chosen]
    return rule.factor * share, chosen


class DeltaWeights(NamedTuple):
    """Tensors of a recurrent layer: the convolution's [channels, 1, taps], `rates` and `shifts`, and the norm's."""

    convolution: Tensor
    rates: Tensor
    shifts: Tensor
    of_heads: NormOf

    def norm(self, of: Norm) -> RMSNorm:
        return RMSNorm(self.of_heads.weight.double(), of.eps)

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        raise NotImplementedError

    def vector(self, name: str) -> Tensor:
        found: Tensor = getattr(self, name).double()
        return found


def reference_delta(mixed: Tensor, gates: Tensor, weights: DeltaWeights, key_heads: int) -> Tensor:
    """Outputs of the rows of a text from its beginning, in float64: [rows, value_heads * value_dim].

    Args:
        mixed: [rows, channels + values], queries, keys, values and z; `gates` [rows, 2 * value_heads].
    """
    heads, (channels, _, taps) = len(weights.rates), weights.convolution.shape
    values = mixed.shape[1] - channels
    nothing, norm = Matrix((), (), 0), Norm("", values // heads, weights.of_heads.eps)
    shape = key_heads, heads, (channels - values) // 2 // key_heads, values // heads, taps
    of = Delta(*shape, nothing, nothing, nothing, norm, "convolution", "rates", "shifts")
    return step_rows(of, mixed, gates, weights, empty(of, (), mixed.device))
