"""The tensors of a recipe: dense ones by name, or those of a checkpoint in its storage format."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from specchat.engine.formats.bfloat16_rows import to_bfloat16
from specchat.engine.formats.int8_rows import rounded, takes_int8_rows
from specchat.engine.formats.layout import Blocks, Joined, Table, Weight, tensors_of
from specchat.engine.formats.quantise import by_rows, dequantised, owned, table_rows
from specchat.engine.model.norm import RMSNorm
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Matrix, Norm
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.matrices import int8_head, packing, read_matrix, read_table, walk
from specchat.engine.weights.weights import Weights

SLAB = 1 << 20
"""Weights dequantised at a time: 4 MiB in float32, which fit a processor's cache."""


class Dense:
    """Float32 tensors by their names in a checkpoint, for instance a module's parameters."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._device = next(iter(tensors.values())).device

    def norm(self, of: Norm) -> RMSNorm:
        weight = self._tensors[f"{of.name}.weight"] if of.name else torch.ones(of.size, device=self._device)
        bias = self._tensors[f"{of.name}.bias"] if of.bias else None
        return RMSNorm(of.factor * (weight + 1 if of.plus_one else weight), of.eps, of.centred, bias)

    def vector(self, name: str) -> Tensor:
        return self._tensors[name]

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        return embedding(tokens, self._tensors[f"{of.names[0]}.weight"])

    def linear(self, x: Tensor, name: str, bias: Tensor | None) -> Tensor:
        """The product with the matrix called `name`."""
        return linear(x, self._tensors[f"{name}.weight"], bias)

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        found = []
        for place, name in enumerate(of.names):
            bias = self._tensors[f"{name}.bias"] if of.bias else None
            made, order = self.linear(x, name, bias), of.order(place)
            found.append(made[..., order] if order else made)
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
        self.activations = checkpoint.activations
        """Form of the rows of products with all weights that take it."""
        self._tied = recipe.tied and checkpoint.drafts is None and checkpoint.head is None
        self._matrices: dict[Matrix, tuple[Weight, Tensor | None]] = {}
        self.head = recipe.head
        """The matrix of the logits, of a draft vocabulary's rows alone if there is one, or in 8 bits."""
        with Weights(checkpoint) as weights:
            weights.check(recipe)
            pack = packing(quant if weights.quant is None else None)

            def product(form: Matrix, count: int, *_: object) -> None:
                for matrix in map(form.of, range(count)):
                    weight, bias = read_matrix(weights, matrix, pack)
                    self._matrices[matrix] = owned(weight), bias

            _, norms, self._vectors = walk(recipe, weights, product, lambda one: one)
            self._norms = {norm: RMSNorm.of(norm, weight) for norm, weight in norms.items()}
            for table in {recipe.embed, recipe.head, *([recipe.per_layer.table] if recipe.per_layer else [])}:
                self._matrices[table] = owned(read_table(weights, table)), None
        if checkpoint.drafts is not None or checkpoint.head is not None:
            head = self._table(recipe.head)
            if checkpoint.drafts is not None:
                head = by_rows(head, itemgetter(torch.tensor(checkpoint.drafts)))
            if not recipe.tied:
                del self._matrices[recipe.head]
            self.head = replace(recipe.head, names=("logits",), outputs=(head.shape[0],))
            self._matrices[self.head] = int8_head(head) if checkpoint.head else head, None

    def norm(self, of: Norm) -> RMSNorm:
        return self._norms[of]

    def vector(self, name: str) -> Tensor:
        return self._vectors[name]

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        found = table_rows(self._table(of), tokens)
        return to_bfloat16(found).float() if self._tied and self._narrows(self._table(of)) else found

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        weight, bias = self._matrices[of]
        found = []
        for part in weight.parts if isinstance(weight, Joined) else (weight,):
            rows = x
            if self.activations == "int8" and takes_int8_rows(part):
                rows = rounded(x, part)
            elif isinstance(part, Tensor) and self._narrows(part):
                rows, part = to_bfloat16(x).float(), to_bfloat16(part)
            found += [linear(rows, slab) for slab in slabs(part)]
        made = torch.cat(found, -1)
        return made if bias is None else made + bias

    def memory(self) -> int:
        """Bytes held."""
        of_matrices = (part for weight, bias in self._matrices.values() for part in (*tensors_of(weight), bias))
        return sum(
            part.nbytes for part in (*(norm.weight for norm in self._norms.values()), *of_matrices) if part is not None
        )

    def _narrows(self, weight: Weight) -> bool:
        """True for weights that products have in bfloat16."""
        return self.activations == "bfloat16" and isinstance(weight, Tensor)

    def _table(self, of: Matrix) -> Table:
        weight, _ = self._matrices[of]
        assert isinstance(weight, Tensor | Blocks)
        return weight


def slabs(weight: Weight, most: int = SLAB) -> Iterator[Tensor]:
    """The matrix in float32, some of its outputs at a time: about `most` weights."""
    if isinstance(weight, Joined):
        for part in weight.parts:
            yield from slabs(part, most)
        return
    outputs, inputs = weight.shape
    if isinstance(weight, Tensor) and weight.dtype == torch.float32:
        yield weight
        return
    step = max(1, most // inputs)
    for first in range(0, outputs, step):
        yield dequantised(by_rows(weight, itemgetter(slice(first, first + step))), torch.float32)
