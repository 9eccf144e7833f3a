"""Mixtures of experts in plain torch; only the chosen experts are multiplied."""

import torch
from torch import Tensor

from specchat.engine.program.ops import Mix
from specchat.engine.recipe import Experts
from specchat.engine.reference.ops import LayerRows, gated_mlp, norm
from specchat.engine.reference.protocols import Tensors


def mix(rows: LayerRows, op: Mix) -> None:
    of, tensors, inputs = op.of, rows.tensors, rows.buffers[op.source.name]
    if rows.mix is not None:
        rows.buffers[op.out.name] = rows.mix(of, inputs)
        return
    inputs, of_experts, of_shared = (
        rows.buffers[one.name].reshape(-1, one.width) for one in (op.source, op.of_experts, op.of_shared)
    )
    shares, chosen = routed(of, tensors.product(inputs, of.router), tensors)
    shares = shares if of.factor == 1 else of.factor * shares
    shares = shares * tensors.vector(of.factors)[chosen] if of.factors else shares
    made = torch.zeros_like(inputs)
    for number in chosen.unique().tolist():
        row, rank = (chosen == number).nonzero(as_tuple=True)
        made[row] += shares[row, rank, None] * gated_mlp(of.expert(number), of_experts[row], tensors)
    if of.shared:
        update = gated_mlp(of.shared, of_shared, tensors)
        if of.shared_gate:
            update = tensors.product(inputs, of.shared_gate).sigmoid() * update
        if of.apart:
            made, update = norm(of.apart.post_experts, made, tensors), norm(of.apart.post_shared, update, tensors)
        made = made + update
    rows.buffers[op.out.name] = made.view(rows.residual.shape)


def routed(of: Experts, scores: Tensor, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """The shares float32 [rows, top] of the experts int64 [rows, top] that scores float32 [rows, experts] choose."""
    shares = scores.sigmoid() if of.sigmoid else scores.softmax(-1)
    ranks = shares + tensors.vector(of.correction) if of.correction else shares
    chosen = ordered(left_out(ranks, of.groups, of.by_best))[:, : of.top]
    shares = shares.gather(1, chosen)
    return shares / shares.sum(-1, keepdim=True) if of.renormalised else shares, chosen


def left_out(ranks: Tensor, groups: tuple[int, int], by_best: bool) -> Tensor:
    """Ranks [rows, experts] with -inf in groups of experts that cannot be chosen, as in `recipe.Experts`."""
    count, kept = groups
    if kept == count:
        return ranks
    grouped = ranks.unflatten(-1, (count, -1))
    others = ordered(grouped.topk(1 if by_best else 2).values.sum(-1))[:, kept:]
    kept_ranks: Tensor = grouped.scatter(1, others[..., None].expand(-1, -1, grouped.shape[-1]), float("-inf"))
    return kept_ranks.flatten(1)


def ordered(ranks: Tensor) -> Tensor:
    """Places of the values in each row, the largest first, of equal ones the lower: int64 [rows, values]."""
    return ranks.sort(dim=-1, descending=True, stable=True).indices
