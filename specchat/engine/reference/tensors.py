"""The tensors of a recipe: dense ones by name, or those of a checkpoint in the bytes that it has them in."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from specchat.engine.kernels.formats import EightBit, FourBit, Weight
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.quantise import block_scales, dequantised, quantise
from specchat.engine.model.weights import Weights
from specchat.engine.pair import Quant
from specchat.engine.recipe import Matrix, Norm

SLAB = 1 << 20
"""Weights that are made float32 at a time: 4 MiB, which a processor's cache holds."""


class Dense:
    """Float32 tensors by their names in a checkpoint: a module's parameters, say."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def vector(self, name: str) -> Tensor:
        return self._tensors[name]

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        return embedding(tokens, self._tensors[f"{of.names[0]}.weight"])

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        found = [
            linear(x, self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"] if of.bias else None)
            for name in of.names
        ]
        return torch.cat(found, -1)


class Kept:
    """The tensors of a checkpoint, as it stores them: matrices are made float32 a slab at a time, as they are used."""

    def __init__(self, checkpoint: Checkpoint, quant: Quant | None = None) -> None:
        """Read them; layers that the checkpoint does not quantise are stored as `quant`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        recipe = checkpoint.config.recipe
        self._vectors: dict[str, Tensor] = {}
        self._matrices: dict[str, Weight] = {}
        self.head = recipe.head
        """The matrix that gives logits, of the rows that it has."""
        with Weights(checkpoint) as weights:
            for each in recipe.layers:
                for one in each.norms:
                    self._read_norm(weights, one)
                for matrix in each.products:
                    self._read(weights, matrix, quant if weights.quant is None else None)
            self._read_norm(weights, recipe.norm)
            for matrix in {recipe.embed, recipe.head}:
                self._read(weights, matrix, None)
        if checkpoint.drafts is not None:
            (name,), drafts = recipe.head.names, torch.tensor(checkpoint.drafts)
            self.head = replace(recipe.head, names=(f"{name}, drafts",), outputs=(len(drafts),))
            self._matrices[self.head.names[0]] = self._dense(name)[drafts]
            if not recipe.tied:
                del self._matrices[name]

    def vector(self, name: str) -> Tensor:
        return self._vectors[name]

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        return embedding(tokens, self._dense(of.names[0])).float()

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        made = torch.cat([linear(x, slab) for name in of.names for slab in slabs(self._matrices[name])], -1)
        return made + torch.cat([self._vectors[f"{name}.bias"] for name in of.names]) if of.bias else made

    def memory(self) -> int:
        """Bytes held."""
        weights = [t for weight in self._matrices.values() for t in parts(weight)]
        return sum(t.numel() * t.element_size() for t in (*self._vectors.values(), *weights))

    def _dense(self, name: str) -> Tensor:
        weight = self._matrices[name]
        return weight if isinstance(weight, Tensor) else dequantised(weight, torch.float32)

    def _read_norm(self, weights: Weights, of: Norm) -> None:
        self._vectors[f"{of.name}.weight"] = weights.get(f"{of.name}.weight", of.size).clone()

    def _read(self, weights: Weights, of: Matrix, quant: Quant | None) -> None:
        for name, outputs in of.parts:
            weight = weights.linear(name, outputs, of.inputs)
            if quant is not None and isinstance(weight, Tensor):
                weight = quantise(weight, quant)
            self._matrices[name] = owned(weight)
            if of.bias:
                self._vectors[f"{name}.bias"] = weights.get(f"{name}.bias", outputs).clone()


def owned(weight: Weight) -> Weight:
    """The matrix in memory of its own rather than the file's; nested scales, which are few, are read once."""
    match weight:
        case FourBit(packed, _, code, block, _):
            return FourBit(packed.clone(), block_scales(weight).clone(), code.clone(), block)
        case EightBit(values, scales):
            return EightBit(values.clone(), scales.clone())
        case _:
            return weight.clone()


def parts(weight: Weight) -> tuple[Tensor, ...]:
    """The tensors that a matrix consists of."""
    match weight:
        case FourBit(packed, scales, _, _, _):
            return packed, scales
        case EightBit(values, scales):
            return values, scales
        case _:
            return (weight,)


def slabs(weight: Weight) -> Iterator[Tensor]:
    """The matrix as float32, some of its outputs at a time."""
    outputs, inputs = weight.shape
    if isinstance(weight, Tensor) and weight.dtype == torch.float32:
        yield weight
        return
    step = max(1, SLAB // inputs)
    for first in range(0, outputs, step):
        some = slice(first, first + step)
        match weight:
            case FourBit(packed, scales, _, _, _):
                yield dequantised(replace(weight, packed=packed[some], scales=scales[some]), torch.float32)
            case EightBit(values, scales):
                yield dequantised(EightBit(values[some], scales[some]), torch.float32)
            case _:
                yield weight[some].float()
