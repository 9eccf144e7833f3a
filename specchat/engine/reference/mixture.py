"""Mixtures of experts in plain torch; only the chosen experts are multiplied."""

from dataclasses import replace

import torch
from torch import Tensor

from specchat.engine.program.ops import Mix
from specchat.engine.recipe import Activation, Apart, Experts, Gated, Matrix
from specchat.engine.reference.ops import LayerRows, gated_mlp, norm
from specchat.engine.reference.protocols import Tensors


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
    ungated: bool,
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
    made = torch.zeros_like(inputs)
    for number in chosen.unique().tolist():
        row, rank = (chosen == number).nonzero(as_tuple=True)
        expert = replace(of.expert(number), activation=activation, ungated=ungated)
        made[row] += shares[row, rank, None] * gated_mlp(expert, of_experts[row], tensors)
    if shared:
        update = gated_mlp(shared, of_shared, tensors)
        if shared_gate:
            update = tensors.product(inputs, shared_gate).sigmoid() * update
        if apart:
            made, update = norm(apart.post_experts, made, tensors), norm(apart.post_shared, update, tensors)
        made = made + update
    rows.buffers[op.out.name] = made.view(rows.residual.shape)


def routed(
    of: Experts, scores: Tensor, tensors: Tensors, sigmoid: bool, correction: str, groups: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """The shares float32 [rows, top] of the experts int64 [rows, top] that scores float32 [rows, experts] choose."""
    shares = scores.sigmoid() if sigmoid else scores.softmax(-1)
    ranks = shares + tensors.vector(correction) if correction else shares
    count, kept = groups
    if kept < count:
        grouped = ranks.unflatten(-1, (count, -1))
        others = ordered(grouped.topk(2).values.sum(-1))[:, kept:]
        ranks = grouped.scatter(1, others[..., None].expand(-1, -1, grouped.shape[-1]), float("-inf")).flatten(1)
    chosen = ordered(ranks)[:, : of.top]
    shares = shares.gather(1, chosen)
    return shares / shares.sum(-1, keepdim=True) if of.renormalised else shares, chosen


def ordered(ranks: Tensor) -> Tensor:
    """Places of the values in each row, the largest first, of equal ones the lower: int64 [rows, values]."""
    return ranks.sort(dim=-1, descending=True, stable=True).indices
