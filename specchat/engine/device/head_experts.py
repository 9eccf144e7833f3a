"""Mixtures of experts in trained heads on a GPU, by the kernels of the models: passes all launch the same work."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.kernels import expert_products
from specchat.engine.kernels.activation import gate_mul
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.route import Pairs, Rule, allocated, route
from specchat.engine.recipe import Experts, Matrix
from specchat.engine.reference.layer import gated
from specchat.engine.reference.protocols import Tensors


class StackedTensors(Tensors, Protocol):
    """The part of `heads.tensors.HeadTensors` used here."""

    def stack(self, of: Matrix) -> Tensor | None: ...


MixStacks = Callable[[Experts, Tensor, StackedTensors], Tensor]


class HeadExperts:
    """The mixtures of a head's layers."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], Pairs] = {}

    def run(self, of: Experts, x: Tensor, tensors: StackedTensors) -> Tensor:
        """Return a mixture's output float32 [rows, hidden] of its inputs x of that shape, up to PASS_ROWS rows.

        The experts' inputs are rounded as their weights are.
        """
        gate_up, down = tensors.stack(of.each.gate_up), tensors.stack(of.each.down)
        assert gate_up is not None
        assert down is not None
        rows, device, among = len(x), x.device, (of.count, of.top, x.device)
        if (of.count, of.top) not in self._pairs:
            self._pairs[of.count, of.top] = allocated(*among)
        pairs = self._pairs[of.count, of.top]
        correction, factors = (tensors.vector(name) if name else None for name in (of.correction, of.factors))
        rule = Rule(of.renormalised, of.sigmoid, of.groups, of.factor, correction, factors)
        route(tensors.product(x, of.router)[None], rule, pairs, rows, None)
        inputs, activation = x.to(gate_up.dtype), of.each.activation
        act = inputs.new_empty(rows * of.top, of.each.width)
        if expert_products.activates(gate_up, *among):
            expert_products.multiply(inputs, gate_up, None, act, pairs, rows, True, None, activation)
        else:
            parts = expert_products.splits(gate_up, *among)
            sums = torch.empty(parts, rows * of.top, 2 * of.each.width, device=device)
            expert_products.multiply(inputs, gate_up, None, sums, pairs, rows, True)
            gate_mul(sums, act, rows * of.top, None, activation)
        made = torch.empty(expert_products.splits(down, *among), rows * of.top, x.shape[1], device=device)
        expert_products.multiply(act, down, None, made, pairs, rows, False)
        beside = gated(of.shared, x, tensors)[None] if of.shared else None
        gate = tensors.product(x, of.shared_gate)[None] if of.shared_gate else None
        out = torch.zeros_like(x)
        add_mixture(out, MixtureOutput(made, pairs, beside, gate), None, 0.0, torch.empty_like(x), rows, None)
        return out
