"""Inputs of each layer by token: made at the beginning of a pass, and added at the end of layers."""

import torch
from torch import Tensor

from specchat.engine.device.buffers import sums_shape
from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.layer_inputs import gate_input, make_inputs
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.recipe import Layer, Matrix, PerLayer, Recipe


class TokenInputs:
    """The inputs of all layers for the rows of a pass, and buffers to add them, which layers share."""

    def __init__(
        self, recipe: Recipe, of: PerLayer, weights: ModelWeights, device: torch.device, dtype: torch.dtype
    ) -> None:
        def partials(*matrices: Matrix) -> Tensor:
            shapes = [sums_shape(weights, matrix) for matrix in matrices]
            return torch.zeros(*map(max, zip(*shapes, strict=True)), device=device)

        size, given = of.norm.size, [layer.input for layer in recipe.layers if layer.input]
        self._project = partials(of.project)
        self._made = torch.zeros(PASS_ROWS, of.width // size, size, device=device)
        self._gate = partials(*(one.gate for one in given))
        self._act = torch.zeros(PASS_ROWS, size, device=device, dtype=dtype)
        self._down = partials(*(one.down for one in given))

    def make(self, of: PerLayer, weights: ModelWeights, tokens: Tensor, x: Tensor, rows: int) -> None:
        """Make the inputs of tokens int32 [>= rows] with embeddings x, compute dtype [PASS_ROWS, hidden]."""
        assert weights.rows is not None
        multiply(x, *weights.products[of.project], self._project, rows)
        weight = weights.norms[of.norm]
        make_inputs(tokens, weights.rows, self._project, weight, of.norm.eps, of.scale, self._made, rows)

    def added(
        self, index: int, layer: Layer, weights: ModelWeights, x: Tensor, rows: int, skip: Tensor | None
    ) -> Tensor:
        """Return what layer `index` adds for its input, before its norm, as partial sums float32 [splits, R, hidden].

        Args:
            x: hidden states before, compute dtype [PASS_ROWS, hidden].
            skip: int32 [1]; non-zero leaves stale sums.
        """
        own, activation = layer.input, layer.gated.activation
        assert own is not None
        gate, down = (weights.products[matrix] for matrix in (own.gate, own.down))
        of_gate, of_down = self._gate[: splits(gate.weight)], self._down[: splits(down.weight)]
        multiply(x, *gate, of_gate, rows, skip)
        gate_input(of_gate, self._made[:, index], self._act, rows, skip, activation)
        multiply(self._act, *down, of_down, rows, skip)
        return of_down

    def memory(self) -> int:
        """Bytes held."""
        return sum(tensor.nbytes for tensor in vars(self).values())
