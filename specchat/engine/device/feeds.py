"""The second halves of layers on a GPU: gated MLPs, and the launches between two norms."""

from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from specchat.engine.device.buffers import views
from specchat.engine.device.weights import ModelWeights
from specchat.engine.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.activation import gate_mul
from specchat.engine.kernels.products import activates, multiply, splits
from specchat.engine.recipe import Gated, Layer, Matrix, Recipe

T = TypeVar("T")


class Sums(NamedTuple, Generic[T]):
    """Values between the kernels of an MLP, as shapes or tensors T.

    Products write partial sums, float32 [splits, PASS_ROWS, outputs]; `act` [PASS_ROWS, width] is in the compute dtype.
    `gate_up` is empty if the product applies the activation itself.
    """

    gate_up: T
    act: T
    down: T


class Feeds:
    """The MLPs of all layers. Layers share memory through views in their own shapes."""

    def __init__(self, recipe: Recipe, weights: ModelWeights, device: torch.device, dtype: torch.dtype) -> None:
        def partials(matrix: Matrix) -> tuple[int, ...]:
            return splits(weights.products[matrix].weight), PASS_ROWS, sum(matrix.outputs)

        def shapes(feed: Gated) -> Sums[tuple[int, ...]]:
            return Sums(
                gate_up=(0,) if activates(weights.products[feed.gate_up].weight) else partials(feed.gate_up),
                act=(PASS_ROWS, feed.width),
                down=partials(feed.down),
            )

        dtypes = torch.float32, dtype, torch.float32
        self._shared, made = views([shapes(layer.gated) for layer in recipe.layers], dtypes, device)
        self.layers: list[Sums[Tensor]] = [Sums(*own) for own in made]

    def run(self, index: int, layer: Layer, weights: ModelWeights, x: Tensor, rows: int, skip: Tensor | None) -> Tensor:
        """Return the MLP's output of layer `index` as partial sums float32 [splits, PASS_ROWS, hidden].

        Args:
            x: compute dtype [PASS_ROWS, hidden].
            skip: int32 [1]; non-zero leaves stale sums.
        """
        own, feed = self.layers[index], layer.gated
        activation = feed.activation
        assert activation != "clamped_swiglu"  # refused by `gpu_need`
        if own.gate_up.numel():
            multiply(x, *weights.products[feed.gate_up], own.gate_up, rows, skip)
            gate_mul(own.gate_up, own.act, rows, skip, activation)
        else:
            multiply(x, *weights.products[feed.gate_up], own.act, rows, skip, activation)
        multiply(own.act, *weights.products[feed.down], own.down, rows, skip)
        return own.down

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.nbytes for t in self._shared)
