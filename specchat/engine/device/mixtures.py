"""Mixtures of experts on a GPU: from the rows of a pass to what is added to them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from specchat.engine.device.buffers import sums_shape, views
from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels import expert_products
from specchat.engine.kernels.activation import gate_mul
from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.mix import MixtureOutput
from specchat.engine.kernels.norm import OtherNorm
from specchat.engine.kernels.products import multiply
from specchat.engine.kernels.route import Rule, allocated, route
from specchat.engine.recipe import Experts, Gated, Layer, Recipe

T = TypeVar("T")


class MixtureSums(NamedTuple, Generic[T]):
    """Values between the kernels of a mixture, as shapes or tensors T; empty in layers without one.

    A pair is a row with one of its experts, PAIRS = PASS_ROWS * top. `act` [PAIRS, width], `inputs` and `beside`
    [PASS_ROWS, hidden] are in the compute dtype, the others float32 sums. `gate_up` is empty if the product applies the
    activation itself, `inputs` and `beside`, those of experts and shared MLP, without norms of their own.
    """

    scores: T
    inputs: T
    gate_up: T
    act: T
    down: T
    beside: T
    gate: T


NOTHING = (0,)


class MixtureFeeds:
    """The mixtures of all layers. Layers share memory through views in their own shapes."""

    def __init__(self, recipe: Recipe, weights: ModelWeights, device: torch.device, dtype: torch.dtype) -> None:
        def shapes(layer: Layer) -> MixtureSums[tuple[int, ...]]:
            of = layer.feed
            if not isinstance(of, Experts):
                return MixtureSums(*(NOTHING,) * len(MixtureSums._fields))
            gate_up, down = (weights.products[one].weight for one in (of.each.gate_up, of.each.down))
            wide, more = (PASS_ROWS, recipe.hidden), _joined(of, weights)
            among = of.count + more, of.top + more, device
            within, many = expert_products.activates(gate_up, *among), PASS_ROWS * (of.top + more)
            parts = expert_products.splits(gate_up, *among), expert_products.splits(down, *among)
            return MixtureSums(
                scores=sums_shape(weights, of.router),
                inputs=wide if of.apart else NOTHING,
                gate_up=NOTHING if within else (parts[0], many, 2 * of.each.width),
                act=(many, of.each.width),
                down=(parts[1], many, recipe.hidden),
                beside=wide if of.apart else NOTHING,
                gate=sums_shape(weights, of.shared_gate) if of.shared_gate and not more else NOTHING,
            )

        single = torch.float32
        dtypes = single, dtype, single, dtype, single, dtype, single
        self._shared, made = views([shapes(layer) for layer in recipe.layers], dtypes, device)
        self.layers: list[MixtureSums[Tensor]] = [MixtureSums(*own) for own in made]
        forms = {(of.count + more, of.top + more) for of in recipe.mixtures for more in [_joined(of, weights)]}
        self.pairs = {form: allocated(*form, device) for form in forms}

    def norms(self, index: int, of: Experts, weights: ModelWeights) -> tuple[OtherNorm, ...]:
        """The norms before experts and shared MLP of layer `index`, where they are apart from the router's."""
        if of.apart is None:
            return ()
        own = self.layers[index]
        outs = (of.apart.pre_experts, own.inputs), (of.apart.pre_shared, own.beside)
        return tuple(OtherNorm(weights.norms[norm], norm.eps, out) for norm, out in outs)

    def run(
        self,
        index: int,
        of: Experts,
        weights: ModelWeights,
        x: Tensor,
        rows: int,
        skip: Tensor | None,
        last: Tensor | None,
        gated: Callable[[Gated, Tensor], Tensor],
    ) -> MixtureOutput:
        """Return the mixture's output of layer `index`, which the next norm sums.

        Args:
            x: compute dtype [PASS_ROWS, hidden], the router's inputs; those of `norms` are made as well.
            last: int32 [1], the last row that counts; None: all do.
            gated: runs an MLP over all rows and returns its partial sums.
        """
        own, more = self.layers[index], _joined(of, weights)
        pairs = self.pairs[of.count + more, of.top + more]
        inputs, beside = x, x
        after: list[tuple[Tensor, float]] = []
        if of.apart:
            inputs, beside = own.inputs, own.beside
            after = [(weights.norms[norm], norm.eps) for norm in (of.apart.post_experts, of.apart.post_shared)]
        multiply(x, *weights.products[of.router], own.scores, rows, skip)
        route(own.scores, _rule(of, weights), pairs, rows, skip, last)
        of_gates, of_down = weights.products[of.each.gate_up], weights.products[of.each.down]
        activation = of.each.activation
        if own.gate_up.numel():
            expert_products.multiply(inputs, *of_gates, own.gate_up, pairs, rows, True, skip)
            gate_mul(own.gate_up, own.act, rows * pairs.top, skip, activation)
        else:
            expert_products.multiply(inputs, *of_gates, own.act, pairs, rows, True, skip, activation)
        expert_products.multiply(own.act, *of_down, own.down, pairs, rows, False, skip)
        if more or of.shared is None:
            return MixtureOutput(own.down, pairs, None, None, last, *after)
        if of.shared_gate:
            multiply(x, *weights.products[of.shared_gate], own.gate, rows, skip)
        shared = gated(of.shared, beside)
        return MixtureOutput(own.down, pairs, shared, own.gate if of.shared_gate else None, last, *after)

    def memory(self) -> int:
        """Bytes held."""
        of_pairs = (t for one in self.pairs.values() for t in vars(one).values() if isinstance(t, Tensor))
        return sum(t.nbytes for t in (*self._shared, *of_pairs))


def _joined(of: Experts, weights: ModelWeights) -> int:
    """Experts more that every row has: one where the shared MLP follows the others in their weights."""
    return int(of.each.down in weights.joined)


def _rule(of: Experts, weights: ModelWeights) -> Rule:
    correction, factors = (weights.vectors[name] if name else None for name in (of.correction, of.factors))
    rule = Rule(of.renormalised, of.sigmoid, of.groups, of.factor, correction, factors)
    if _joined(of, weights):
        return replace(rule, shared="gated" if of.shared_gate else "whole")
    return rule
