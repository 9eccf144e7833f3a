"""The second halves of layers on a GPU: gated MLPs and mixtures of them, the launches between two norms."""

from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from specchat.engine.device.buffers import sums_shape, views
from specchat.engine.device.mixtures import MixtureFeeds
from specchat.engine.device.weights import ModelWeights
from specchat.engine.formats.layout import Weight
from specchat.engine.kernels.activation import gate_mul
from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.mix import MixtureOutput
from specchat.engine.kernels.norm import OtherNorm
from specchat.engine.kernels.products import activates, multiply
from specchat.engine.recipe import Experts, Gated, Layer, Norm, Recipe

T = TypeVar("T")


class Sums(NamedTuple, Generic[T]):
    """Values between the kernels of an MLP, as shapes or tensors T; empty in layers without one.

    Products write partial sums, float32 [splits, PASS_ROWS, outputs]; `act` [PASS_ROWS, width] is in the compute dtype.
    `gate_up` is empty if the product applies the activation itself.
    """

    gate_up: T
    act: T
    down: T


class Feeds:
    """The MLPs and mixtures of all layers. Layers share memory through views in their own shapes."""

    def __init__(self, recipe: Recipe, weights: ModelWeights, device: torch.device, dtype: torch.dtype) -> None:
        def shapes(feed: Gated | None) -> Sums[tuple[int, ...]]:
            if feed is None:
                return Sums((0,), (0,), (0,))
            return Sums(
                gate_up=(0,) if activates(weights.products[feed.gate_up].weight) else sums_shape(weights, feed.gate_up),
                act=(PASS_ROWS, feed.width),
                down=sums_shape(weights, feed.down),
            )

        dtypes = torch.float32, dtype, torch.float32
        self._shared, made = views([shapes(_for_all(layer, weights)) for layer in recipe.layers], dtypes, device)
        self.layers: list[Sums[Tensor]] = [Sums(*own) for own in made]
        self.mixtures = MixtureFeeds(recipe, weights, device, dtype)

    def other_norms(self, index: int, layer: Layer, weights: ModelWeights) -> tuple[OtherNorm, ...]:
        """Norms of the residual stream before the second half of layer `index`, beside `first_norm`."""
        feed = layer.feed
        return self.mixtures.norms(index, feed, weights) if isinstance(feed, Experts) else ()

    def run(
        self,
        index: int,
        layer: Layer,
        weights: ModelWeights,
        x: Tensor,
        rows: int,
        skip: Tensor | None,
        last: Tensor | None,
    ) -> Tensor | MixtureOutput:
        """Return the output of the second half of layer `index` as partial sums float32 [splits, PASS_ROWS, hidden].

        Of a mixture they are those of each expert.

        Args:
            x: compute dtype [PASS_ROWS, hidden], the residual stream after `first_norm`; after `other_norms` it is
                where they say.
            skip: int32 [1]; non-zero leaves stale sums.
            last: int32 [1], the last row that counts, for which alone experts are read; None: all do.
        """
        feed = layer.feed
        if isinstance(feed, Gated):
            return self._gated(index, feed, weights, x, rows, skip)

        def gated(one: Gated, inputs: Tensor) -> Tensor:
            return self._gated(index, one, weights, inputs, rows, skip)

        return self.mixtures.run(index, feed, weights, x, rows, skip, last, gated)

    def _gated(
        self, index: int, feed: Gated, weights: ModelWeights, x: Tensor, rows: int, skip: Tensor | None
    ) -> Tensor:
        own, activation = self.layers[index], feed.activation
        if own.gate_up.numel():
            multiply(x, *weights.products[feed.gate_up], own.gate_up, rows, skip)
            gate_mul(own.gate_up, own.act, rows, skip, activation)
        else:
            multiply(x, *weights.products[feed.gate_up], own.act, rows, skip, activation)
        multiply(own.act, *weights.products[feed.down], own.down, rows, skip)
        return own.down

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.nbytes for t in self._shared) + self.mixtures.memory()


def first_norm(layer: Layer) -> Norm | None:
    """The norm before a second half: that of the router, where its parts have norms of their own."""
    apart = layer.feed.apart if isinstance(layer.feed, Experts) else None
    return apart.router if apart else layer.pre_feed


def first_weight(layer: Layer, weights: ModelWeights) -> Weight | None:
    """The weight by which a second half multiplies first, that of an MLP for all rows; None if it has none."""
    feed = _for_all(layer, weights)
    return None if feed is None else weights.products[feed.gate_up].weight


def _for_all(layer: Layer, weights: ModelWeights) -> Gated | None:
    """The MLP that all rows go through, if it has products of its own."""
    feed = layer.feed
    if isinstance(feed, Experts):
        return None if feed.each.down in weights.joined else feed.shared
    return feed
