"""The tensors of a recipe: dense ones by name, or those of a checkpoint in its storage format."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from specchat.engine.formats.layout import Weight, mapped, tensors_of
from specchat.engine.formats.quantise import by_rows, dequantised
from specchat.engine.model.norm import RMSNorm
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Matrix, Norm
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.matrices import read_matrix, read_norm, read_table, read_vectors
from specchat.engine.weights.weights import Weights


class Tensors(Protocol):
    """The tensors that layers name."""

    def norm(self, of: Norm) -> RMSNorm:
        """A norm with its weight."""
        ...

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        """x W^T + b: float32 [..., inputs] -> float32 [..., outputs]."""
        ...

    def vector(self, name: str) -> Tensor:
        """A tensor that is neither a matrix nor the weight of a norm, float32."""
        ...


class ModelTensors(Tensors, Protocol):
    """The tensors that a recipe names."""

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        """Rows of a table: int64 [...] -> float32 [..., hidden]."""
        ...


SLAB = 1 << 20
"""Weights dequantised at a time: 4 MiB in float32, which fit a processor's cache."""


class Dense:
    """Float32 tensors by their names in a checkpoint, for instance a module's parameters."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._device = next(iter(tensors.values())).device

    def norm(self, of: Norm) -> RMSNorm:
        weight = self._tensors[f"{of.name}.weight"] if of.name else torch.ones(of.size, device=self._device)
        return RMSNorm(of.factor * (weight + 1 if of.plus_one else weight), of.eps, of.centred)

    def vector(self, name: str) -> Tensor:
        return self._tensors[name]

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        return embedding(tokens, self._tensors[f"{of.names[0]}.weight"])

    def linear(self, x: Tensor, name: str, bias: Tensor | None) -> Tensor:
        """The product with the matrix called `name`."""
        return linear(x, self._tensors[f"{name}.weight"], bias)

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        found = []
        for index, name in enumerate(of.names):
            bias = self._tensors[f"{name}.bias"] if of.bias else None
            product, order = self.linear(x, name, bias), of.order(index)
            found.append(product[..., order] if order else product)
        whole, turns = torch.cat(found, -1), of.turns
        return whole[..., turns] if turns else whole


class CheckpointTensors:
    """The tensors of a checkpoint in its storage format; matrices are dequantised a slab at a time when used."""

    def __init__(self, checkpoint: Checkpoint, quant: Quant | None = None) -> None:
        """Read the tensors; dense layers are quantised as `quant`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        recipe = checkpoint.config.recipe
        self._norms: dict[Norm, RMSNorm] = {}
        self._matrices: dict[Matrix, tuple[Weight, Tensor | None]] = {}
        self._vectors: dict[str, Tensor] = {}
        self.head = recipe.head
        """The matrix of the logits, with the rows of a draft vocabulary only, if there is one."""
        with Weights(checkpoint) as weights:
            weights.check(recipe)
            for matrix in recipe.matrices:
                weight, bias = read_matrix(weights, matrix, quant if weights.quant is None else None)
                self._matrices[matrix] = owned(weight), bias
            per_layer = recipe.per_layer
            for matrix in {recipe.embed, recipe.head, *((per_layer.table, per_layer.project) if per_layer else ())}:
                self._matrices[matrix] = read_table(weights, matrix).clone(), None
            for layer in recipe.layers:
                self._vectors |= read_vectors(weights, layer)
            of_layers = (norm for layer in recipe.layers for norm in layer.norms)
            for norm in (recipe.norm, *of_layers, *([per_layer.norm] if per_layer else [])):
                self._norms[norm] = RMSNorm(read_norm(weights, norm), norm.eps, norm.centred)
        if checkpoint.drafts is not None:
            rows_of_drafts = self._table(recipe.head)[torch.tensor(checkpoint.drafts)]
            if not recipe.tied:
                del self._matrices[recipe.head]
            self.head = replace(recipe.head, outputs=(len(rows_of_drafts),))
            self._matrices[self.head] = rows_of_drafts, None

    def norm(self, of: Norm) -> RMSNorm:
        return self._norms[of]

    def vector(self, name: str) -> Tensor:
        return self._vectors[name]

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        return embedding(tokens, self._table(of)).float()

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        weight, bias = self._matrices[of]
        product = torch.cat([linear(x, slab) for slab in slabs(weight)], -1)
        return product if bias is None else product + bias

    def memory(self) -> int:
        """Bytes held."""
        of_matrices = (part for weight, bias in self._matrices.values() for part in (*tensors_of(weight), bias))
        return sum(
            part.nbytes for part in (*(norm.weight for norm in self._norms.values()), *of_matrices) if part is not None
        )

    def _table(self, of: Matrix) -> Tensor:
        weight, _ = self._matrices[of]
        assert isinstance(weight, Tensor)
        return weight


def owned(weight: Weight) -> Weight:
    """Copy a matrix from the file's memory, with nested scales dequantised."""
    return mapped(by_rows(weight, lambda rows: rows), torch.clone)


def slabs(weight: Weight, most: int = SLAB) -> Iterator[Tensor]:
    """The matrix in float32, some of its outputs at a time: about `most` weights."""
    outputs, inputs = weight.shape
    if isinstance(weight, Tensor) and weight.dtype == torch.float32:
        yield weight
        return
    step = max(1, most // inputs)
    for first in range(0, outputs, step):
        yield dequantised(by_rows(weight, itemgetter(slice(first, first + step))), torch.float32)
