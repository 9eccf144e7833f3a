"""The tensors of a recipe, read from a checkpoint."""

from typing import overload

import torch
from torch import Tensor

from specchat.engine.formats.layout import Weight
from specchat.engine.formats.quantise import by_rows, dequantised, fused, quantise
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Layer, Matrix, Norm
from specchat.engine.weights.weights import Weights


def read_matrix(weights: Weights, matrix: Matrix, quant: Quant | None) -> tuple[Weight, Tensor | None]:
    """Read a matrix and its bias float32 [outputs], if any; quantise it as `quant` where both allow it.

    Raises:
        ModelError: tensors missing, damaged or of other shapes.
    """

    def stored(place: int, name: str, outputs: int) -> Weight:
        weight = reordered(weights.linear(name, outputs, matrix.inputs), matrix.order(place))
        wanted = None if matrix.dense else quant
        return quantise(weight, wanted) if wanted is not None and isinstance(weight, Tensor) else weight

    def bias(place: int, name: str, outputs: int) -> Tensor:
        found, order = weights.get(f"{name}.bias", outputs), matrix.order(place)
        return found[order] if order else found

    biases = [bias(place, *part) for place, part in enumerate(matrix.parts)] if matrix.bias else []
    made = reordered(fused([stored(place, *part) for place, part in enumerate(matrix.parts)]), matrix.turns)
    return made, reordered(torch.cat(biases), matrix.turns) if biases else None


@overload
def reordered(weight: Tensor, order: list[int]) -> Tensor: ...


@overload
def reordered(weight: Weight, order: list[int]) -> Weight: ...


def reordered(weight: Weight, order: list[int]) -> Weight:
    """The rows of a matrix in an order, for which nested scales are dequantised; an empty one leaves them.

    -1 stands for a row of zeros.
    """
    if not order:
        return weight

    def chosen(rows: Tensor) -> Tensor:
        return torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])[order] if -1 in order else rows[order]

    return by_rows(weight, chosen)


def read_table(weights: Weights, matrix: Matrix) -> Tensor:
    """Read a table of embeddings as stored; float32 where it is quantised, which no known checkpoint does.

    Raises:
        ModelError: it is missing, damaged or of another shape.
    """
    weight, _ = read_matrix(weights, matrix, None)
    return weight if isinstance(weight, Tensor) else dequantised(weight, torch.float32)


def read_norm(weights: Weights, norm: Norm) -> Tensor:
    """Read the weight of a norm, float32 [size]; ones where it has none.

    Raises:
        ModelError: it is missing, damaged or of another shape.
    """
    if not norm.name:
        return torch.ones(norm.size, device=weights.device)
    weight = weights.get(f"{norm.name}.weight", norm.size)
    weight = weight + 1 if norm.plus_one else weight
    return weight if norm.factor == 1 else weight * norm.factor


def read_vectors(weights: Weights, layer: Layer) -> dict[str, Tensor]:
    """Read a layer's tensors that are neither matrices nor weights of norms, float32, by name.

    Raises:
        ModelError: one is missing, damaged or of another shape.
    """
    return {name: weights.get(name, *shape) for name, shape in layer.vectors.items()}
