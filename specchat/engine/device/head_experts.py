"""Mixtures of experts in trained heads on a GPU, by the kernels of the models: passes all launch the same work."""

import torch
from torch import Tensor

from specchat.engine.formats.layout import Weight
from specchat.engine.heads.tensors import HeadTensors
from specchat.engine.kernels import expert_products
from specchat.engine.kernels.activation import gate_mul
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.norm import OtherNorm, ResidualUpdate
from specchat.engine.kernels.pairs import Pairs, allocated
from specchat.engine.kernels.route import Rule, route
from specchat.engine.recipe import Activation, Experts
from specchat.engine.reference.ops import gated_mlp


class HeadExperts:
    """The mixtures of a head's layers."""

    def __init__(self, tensors: HeadTensors) -> None:
        self._tensors = tensors
        self._pairs: dict[tuple[int, int], Pairs] = {}

    def run(self, of: Experts, x: Tensor) -> Tensor:
        """Return a mixture's output float32 [rows, hidden] of its inputs x of that shape, up to PASS_ROWS rows.

        The experts' inputs are rounded as their weights are.
        """
        tensors = self._tensors
        gate_up, down = tensors.stack(of.each.gate_up), tensors.stack(of.each.down)
        assert gate_up is not None
        assert down is not None
        if (of.count, of.top) not in self._pairs:
            self._pairs[of.count, of.top] = allocated(of.count, of.top, x.device)
        pairs = self._pairs[of.count, of.top]
        correction, factors = (tensors.vector(name) if name else None for name in (of.correction, of.factors))
        rule = Rule(of.renormalised, of.sigmoid, of.groups, of.factor, correction, factors, by_best=of.by_best)
        route(tensors.product(x, of.router)[None], rule, pairs, len(x), None)
        beside = gated_mlp(of.shared, x, tensors)[None] if of.shared else None
        gate = tensors.product(x, of.shared_gate)[None] if of.shared_gate else None
        return mixed(x.to(gate_up.dtype), pairs, gate_up, down, of.each.activation, beside, gate)


def mixed(
    x: Tensor,
    pairs: Pairs,
    gate_up: Weight,
    down: Weight,
    activation: Activation,
    beside: Tensor | None = None,
    gate: Tensor | None = None,
) -> Tensor:
    """Return the sum of the chosen experts' outputs, float32 [rows, hidden], of x compute dtype [rows, hidden].

    The weights are those of all experts; `beside` and `gate` as in `MixtureOutput`.
    """
    rows, among = len(x), (pairs.count, pairs.top, x.device)
    act = x.new_empty(rows * pairs.top, down.shape[1])
    if expert_products.activates(gate_up, *among):
        expert_products.multiply(x, gate_up, None, act, pairs, rows, True, activation=activation)
    else:
        parts = expert_products.splits(gate_up, *among)
        sums = x.new_empty(parts, rows * pairs.top, 2 * down.shape[1], dtype=torch.float32)
        expert_products.multiply(x, gate_up, None, sums, pairs, rows, True)
        gate_mul(sums, act, rows * pairs.top, None, activation)
    made = x.new_empty(expert_products.splits(down, *among), rows * pairs.top, x.shape[1], dtype=torch.float32)
    expert_products.multiply(act, down, None, made, pairs, rows, False)
    out = torch.zeros_like(x, dtype=torch.float32)
    norm = OtherNorm(None, 0.0, torch.empty_like(out))
    add_mixture(ResidualUpdate(out), MixtureOutput(made, pairs, beside, gate), norm, rows)
    return out
