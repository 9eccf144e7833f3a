"""Numbers of GGUF's IQ2 and IQ3 types: rows of a codebook, signs, and odd scales (ggml-common.h, ggml-quants.c).

A group has one row of eight magnitudes or two of four, and a sign for each.
"""

from base64 import b85decode
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

from specchat.engine.formats.codebooks import CODEBOOKS

if TYPE_CHECKING:
    from torch import Tensor

SUPER_BLOCK = 256
"""Inputs that share the factor of their blocks' scales, in GGUF's K types."""
OF_HALVES = 3
"""Bits of whole numbers whose super-blocks have a float16 on a GPU too, where a float32 would take too much."""
GROUP, QUARTER, WORD = 8, 4, 4
"""Inputs of a group, whose numbers of one output lie side by side on a processor; groups that share a word; its bytes.
"""
NUMBERS = 8
"""Magnitudes of a code; the bit above those of a magnitude is its sign."""
_OF_TWO_BITS = (1.0, 3.125, 5.375)
"""An eighth of the file's magnitudes; IQ3_XXS has a quarter. So scales are odd numbers times a super-block's."""


@dataclass(frozen=True)
class GridType:
    """A type with a codebook.

    Attributes:
        values: magnitudes of a row, 8 or 4.
        signs: "apart": a byte for each group; "paired": the highest seven bits of the 16 of a row's number; "in
            scales": a word for each four groups has seven bits of each, and their scale in the highest four. An eighth
            sign that is not there makes the number of negative ones even.
        magnitudes: what numbers stand for.
    """

    name: str
    values: int
    signs: Literal["apart", "paired", "in scales"]
    magnitudes: tuple[float, ...]

    @property
    def code(self) -> tuple[float, ...]:
        """The values of numbers of four bits."""
        filled = (*self.magnitudes, *[0.0] * (NUMBERS - len(self.magnitudes)))
        return *filled, *(-one for one in filled)

    @property
    def row_bytes(self) -> int:
        """Bytes of a group in `GridBlocks.low`."""
        return 1 if self.values == GROUP and self.signs != "paired" else 2

    @property
    def high_bits(self) -> int:
        """Bits of a row's number in `GridBlocks.high`."""
        return self.values // QUARTER if self.signs == "apart" else 0

    @property
    def turn(self) -> int:
        """Inputs that rows of bytes are multiplied with at a time: of a block, and of up to four rows."""
        return 32 if self.values == GROUP and self.signs == "in scales" else 16

    def widths(self, of_bytes: bool) -> tuple[int, int, int]:
        """Bytes of the numbers that rows, signs and scales lie in on a processor; `of_bytes`: for rows of bytes."""
        groups = self.turn // GROUP if of_bytes else 1
        return groups * self.row_bytes, groups, WORD if self.signs == "in scales" else 1


GRIDS = {
    one.name: one
    for one in (
        GridType("IQ2_XXS", 8, "in scales", _OF_TWO_BITS),
        GridType("IQ2_XS", 8, "paired", _OF_TWO_BITS),
        GridType("IQ2_S", 8, "apart", _OF_TWO_BITS),
        GridType("IQ3_XXS", 4, "in scales", (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.5)),
        GridType("IQ3_S", 4, "apart", (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0)),
    )
}


class GridParts(Protocol):
    """Weights by a codebook (`layout.GridBlocks`)."""

    @property
    def grid(self) -> GridType: ...
    @property
    def low(self) -> "Tensor": ...
    @property
    def high(self) -> "Tensor | None": ...
    @property
    def signs(self) -> "Tensor | None": ...
    @property
    def scales(self) -> "Tensor": ...
    @property
    def codebook(self) -> "Tensor": ...


@cache
def grid_words(grid: GridType) -> "Tensor":
    """The rows of a codebook: int32 [rows], magnitudes in four bits each, the first in the lowest."""
    import torch

    base, values, text = CODEBOOKS[grid.name]
    octets = torch.frombuffer(bytearray(b85decode(text)), dtype=torch.uint8)
    there = (octets[:, None] >> torch.arange(8)).flatten() & 1
    found = there[: base**values].nonzero()
    places = torch.arange(values)
    return ((found // base**places % base) << 4 * places).sum(1).to(torch.int32)


def grid_numbers(weight: GridParts) -> "Tensor":
    """Numbers of four bits: uint8 [outputs, inputs]."""
    import torch

    from specchat.engine.formats.fields import fields

    grid, low = weight.grid, weight.low
    low = low if grid.row_bytes == 1 else low.view(torch.int16)
    low = low.int() & ((1 << 8 * grid.row_bytes) - 1)
    if grid.signs == "paired":
        rows, signs = low & 511, _even(low >> 9)
    elif grid.signs == "apart":
        assert weight.signs is not None
        rows, signs = low, weight.signs
    else:
        words = weight.scales.view(torch.int32)
        rows, signs = low, _even(torch.stack([words >> 7 * group & 127 for group in range(4)], -1).flatten(1))
    if grid.values < GROUP:
        rows = torch.stack((rows & 255, rows >> 8), -1).flatten(1)
    if weight.high is not None:
        rows = rows | fields(weight.high, grid.high_bits).int() << 8
    words = weight.codebook[rows]
    words = words if grid.values == GROUP else words.to(torch.int16)
    return fields(words.view(torch.uint8), 4) | fields(signs.to(torch.uint8), 1) << 3


def grid_scales(weight: GridParts) -> "Tensor":
    """Whole scales of blocks: odd numbers, int32 [outputs, inputs / block]."""
    import torch

    from specchat.engine.formats.fields import fields

    if weight.grid.signs == "in scales":
        found = weight.scales.view(torch.int32) >> 28 & 15
    else:
        found = fields(weight.scales, 4).int()
    return 2 * found + 1


def _even(sevens: "Tensor") -> "Tensor":
    """Bytes of eight signs of which the first seven are known, and an even number negative."""
    folded = sevens ^ sevens >> 4
    folded = folded ^ folded >> 2
    return sevens | ((folded ^ folded >> 1) & 1) << 7
