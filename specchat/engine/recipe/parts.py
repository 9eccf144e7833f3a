"""Norms, rotations and matrices, which all else is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any


class Unsupported(ValueError):
    """A feature of a model that no executor supports; the message names it."""


@dataclass(frozen=True)
class Norm:
    """A root mean square norm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + eps) * weight.

    Attributes:
        name: of the weight, without ".weight"; empty: no weight.
        size: values that share a mean.
        plus_one: the file holds the weight less 1.
        factor: the weight is that of the file times this.
        centred: of x less its mean, a LayerNorm (Ba et al. 2016).
        bias: a vector of the file is added at last; the norm is `centred`.
    """

    name: str
    size: int
    eps: float
    plus_one: bool = False
    factor: float = 1.0
    centred: bool = False
    bias: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors in the file, by name."""
        ends = ["weight"] * bool(self.name) + ["bias"] * self.bias
        return {f"{self.name}.{end}": (self.size,) for end in ends}

    @property
    def values(self) -> int:
        """Values of the weight, which may be ones, and of the bias."""
        return self.size * (1 + self.bias)


@dataclass(frozen=True)
class Rope:
    """Rotary position embeddings over the halves of `width` values (Su et al. 2021), and their scaling.

    Attributes:
        kind: default, linear, llama3, yarn, longrope or proportional.
        options: of the scaling, by the keys of transformers' "rope_parameters".
    """

    theta: float
    kind: str
    width: int
    options: Mapping[str, Any] = field(hash=False)

    @property
    def turning(self) -> int:
        """Pairs of values that turn: the first ones, of others the angle is 0 everywhere."""
        part = self.options.get("partial_rotary_factor", 1.0) if self.kind == "proportional" else 1.0
        return int(part * self.width // 2)


@dataclass(frozen=True)
class Matrix:
    """A product of one or more stored matrices of the same inputs, concatenated along the outputs.

    `names` are without ".weight" and ".bias"; with `bias` each has one, [outputs]. A single name holds all `outputs`.
    A `dense` product is never quantised when it is loaded. `paired` are the rows of a head and those of them to rotate,
    in the first two matrices, where neighbours make pairs; they are read in the order of `Rope`: the first of each
    pair, then the second. `by_head` are the rows of each part for one head, where a single stored matrix holds the
    parts of a head after those of the one before; they are read part by part. `alternating` are the rows of a head,
    where heads of the first two stored matrices take turns in the product: one of the first, then one of the second.
    """

    names: tuple[str, ...]
    outputs: tuple[int, ...]
    inputs: int
    bias: bool = False
    dense: bool = False
    paired: tuple[int, int] = (0, 0)
    by_head: tuple[int, ...] = ()
    alternating: int = 0

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """(name, outputs) of each stored matrix."""
        outputs = (sum(self.outputs),) if len(self.names) == 1 else self.outputs
        return tuple(zip(self.names, outputs, strict=True))

    def fused(self, name: str) -> "Matrix":
        """The same product, stored as one matrix."""
        return replace(self, names=(name,))

    def only(self, first: int, last: int) -> "Matrix":
        """The product of the stored matrices `first`, ..., `last` - 1 alone."""
        return replace(self, names=self.names[first:last], outputs=self.outputs[first:last], alternating=0)

    def order(self, index: int) -> list[int]:
        """The rows of stored matrix `index` in the order of the product; empty where they have that order."""
        if self.by_head:
            heads = range(0, sum(self.outputs), sum(self.by_head))
            ends = [0, *accumulate(self.by_head)]
            return [head + row for part in pairwise(ends) for head in heads for row in range(*part)]
        (head, rotated), outputs = self.paired, self.outputs[index]
        if not rotated or index > 1:
            return []
        of_head = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, head)]
        return [first + row for first in range(0, outputs, head) for row in of_head]

    @property
    def turns(self) -> list[int]:
        """The rows of all stored matrices in the order of the product; empty where they have that order."""
        if not self.alternating:
            return []
        one, every = self.outputs[0], sum(self.outputs)
        heads = range(0, one, self.alternating)
        taken = [first + row for head in heads for first in (head, one + head) for row in range(self.alternating)]
        return [*taken, *range(2 * one, every)]

    def of(self, number: int) -> "Matrix":
        """The matrix of expert `number`, for which "{}" stands in the names."""
        return replace(self, names=tuple(name.format(number) for name in self.names))

    @property
    def parameters(self) -> int:
        """Values of the matrices and their biases."""
        return sum(self.outputs) * (self.inputs + self.bias)
