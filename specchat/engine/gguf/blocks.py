"""Places of tensors in the blocks of a GGUF file, one of which is a layer or a half of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specchat.engine.gguf.files import GgufFiles
from specchat.engine.recipe import Matrix, Norm

Change = Literal["", "plus_one", "exponential"]


@dataclass(frozen=True)
class StoredAs:
    """The place of a tensor of a recipe in a file.

    Attributes:
        name: of the tensor in the file, or of a list of real numbers in its metadata.
        expert: number of a matrix in a stack, or of a number in a list; None: the whole tensor.
        rows: of the stored tensor, in the order of the recipe; empty: all as stored.
        inputs: of the stored tensor, in the order of the recipe; empty: as stored.
        change: the file holds x + 1, or -e^x.
        dims: dimensions of the tensor; files leave out those of 1, and may have a vector as a matrix.
        values: name of the values of latent attention, whose keys `name` holds transposed, [heads, latent, head]; rows
            of a head's key come before those of its value.
    """

    name: str
    expert: int | None = None
    rows: Sequence[int] = field(default=(), repr=False)
    inputs: Sequence[int] = field(default=(), repr=False)
    change: Change = ""
    dims: int = 1
    values: str = ""


Places = Iterator[tuple[str, StoredAs]]
"""Names in a recipe, and the place of each in a file."""


@dataclass(frozen=True)
class FileBlock:
    """A block of a file; `before` begins the names of its tensors."""

    files: GgufFiles
    before: str = ""

    def matrix(
        self, matrix: Matrix, names: Sequence[str], orders: Sequence[Sequence[int]] = (), expert: int | None = None
    ) -> Places:
        """The stored matrices of a product, each of its own name, or parts of one."""
        begin = 0
        for number, (name, outputs) in enumerate(matrix.parts):
            rows = orders[number] if number < len(orders) else ()
            if len(names) < len(matrix.names):
                rows = [begin + row for row in rows] or range(begin, begin + outputs)
            if len(matrix.names) == 1 and len(matrix.outputs) > 1 and any(orders):
                rows = _joined(matrix.outputs, orders)
            begin += outputs
            stored = names[number] if len(names) > number else names[0]
            yield f"{name}.weight", self.source(f"{stored}.weight", expert, rows, dims=2)
            if matrix.bias:
                yield f"{name}.bias", self.source(f"{stored}.bias", expert, rows)

    def norm(self, norm: Norm | None, *names: str) -> Places:
        """A norm by the first of its names that the file has."""
        if norm is not None and norm.name:
            name = next((one for one in names if f"{one}.weight" in self), names[0])
            yield f"{norm.name}.weight", self.source(f"{name}.weight", change="plus_one" if norm.plus_one else "")
            if norm.bias:
                yield f"{norm.name}.bias", self.source(f"{name}.bias")

    def __contains__(self, name: str) -> bool:
        """True where the file holds a tensor of the block."""
        return f"{self.before}{name}" in self.files.tensors

    def source(
        self,
        name: str,
        expert: int | None = None,
        rows: Sequence[int] = (),
        inputs: Sequence[int] = (),
        change: Change = "",
        dims: int = 1,
    ) -> StoredAs:
        """The place of a tensor of the block; the others as in `StoredAs`."""
        return StoredAs(f"{self.before}{name}", expert, rows, inputs, change, dims)


def _joined(outputs: Sequence[int], orders: Sequence[Sequence[int]]) -> list[int]:
    """The rows of matrices one after another, each in its order."""
    rows: list[int] = []
    for part, count in enumerate(outputs):
        order = orders[part] if part < len(orders) else ()
        rows += [len(rows) + row for row in order or range(count)] if count else []
    return rows
