"""Mixtures of experts on a GPU: from the router's scores to what is added to the residual stream."""

from typing import Literal

from torch import Tensor

from specchat.engine.device.launches import Launches
from specchat.engine.kernels import expert_products
from specchat.engine.kernels.activation import Curve, gate_mul
from specchat.engine.kernels.mix import MixtureOutput
from specchat.engine.kernels.route import Rule, route
from specchat.engine.program.ops import Mix
from specchat.engine.recipe import Activation, Matrix


def mix(run: Launches, op: Mix) -> None:
    """Launch the experts of each row, and the shared MLP; the next norm sums them."""
    model, of, views, rows, skip = run.model, op.of, run.views, run.at.rows, run.skip
    shared, activation = of.shared, of.each.activation
    weights, more = model.weights, model.buffers.cuts.more(of)
    in_all = shared is None or more
    run.flush(None if shared is None or more else weights.products[shared.gate_up].weight)
    source, of_experts, of_shared = (views[one.name] for one in (op.source, op.of_experts, op.of_shared))
    pairs = model.buffers.pairs[of.count + more, of.top + more]
    run.multiply(of.router, source, views["scores"])
    added, multiples = (weights.vectors[name] if name else None for name in (of.correction, of.factors))
    joined: Literal["gated", "whole"] | None = ("gated" if of.shared_gate else "whole") if more else None
    rule = Rule(of.renormalised, of.sigmoid, of.groups, of.factor, added, multiples, joined, of.by_best)
    route(views["scores"], rule, pairs, rows, skip, run.last)
    gates, gated = views["gates and values of pairs"], views["gated pairs"]
    gate_up = weights.products[of.each.gate_up]
    if gates.numel():
        expert_products.multiply(of_experts, *gate_up, gates, pairs, rows, True, skip)
        gate_mul(gates, gated, rows * pairs.top, skip, activation)
    else:
        expert_products.multiply(of_experts, *gate_up, gated, pairs, rows, True, skip, activation)
    out = views[op.out.name]
    expert_products.multiply(gated, *weights.products[of.each.down], out, pairs, rows, False, skip)
    if in_all:
        run.values[op.out.name] = MixtureOutput(out, pairs, last=run.last)
        return
    assert shared is not None
    if of.shared_gate:
        run.multiply(of.shared_gate, source, views["shared gate"])
    gated_mlp(run, shared.gate_up, of_shared, views["gated"], shared.activation)
    run.multiply(shared.down, views["gated"], views["shared"])
    norms = (of.apart.post_experts, of.apart.post_shared) if of.apart else ()
    post = [(weights.norms[norm], norm.eps) for norm in norms]
    gate = views["shared gate"] if of.shared_gate else None
    run.values[op.out.name] = MixtureOutput(out, pairs, views["shared"], gate, run.last, *post)


def gated_mlp(
    run: Launches, gate_up: Matrix, source: Tensor, out: Tensor, activation: Activation, curve: Curve | None = None
) -> None:
    """Launch the first half of an MLP: activation(gate) * up to compute dtype [PROMPT_ROWS, width]."""
    sums = run.views["gates and values"]
    if sums.numel():
        run.multiply(gate_up, source, sums)
        gate_mul(sums, out, run.at.rows, run.skip, activation, curve)
    else:
        run.multiply(gate_up, source, out, activation)
