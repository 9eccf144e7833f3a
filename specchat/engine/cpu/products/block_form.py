"""Storage of weights in blocks for the inner loops, as one number that is a constant of compiled code."""

from typing import NamedTuple

from specchat.engine.formats.grids import GRIDS, GROUP, GridType
from specchat.engine.memory.vectors import LANES

FLOATS, HALVES, SIGNED, UNSIGNED, EXPONENTS, TABLED = range(6)
"""Scales of blocks: float32, float16, bytes that a float16 multiplies, those of the exponents of float32, or of
a table, which lies after that of the code."""
UNSHIFTED, ZEROS, MINIMUMS, PAIRED = range(4)
"""Shifts that blocks take away: nothing; an int8 from each number; a minimum, stored as scales are or in their bytes.
"""
LINE = 64
"""Bytes of a cache line."""
BLOCKED = 1 << 20
"""Formats from here on are of blocks."""


class BlockForm(NamedTuple):
    """Storage of weights in blocks (`layout.Blocks`, `layout.FourBit`), whose `form` is a constant of compiled code.

    Numbers have `low` bits in one plane and `high` bits in another. A number stands for an entry of a table of 16 if it
    is `coded`, else for itself less `offset`.

    Rows are bytes where `rounded` is not 0: 1 more than the logarithm of the groups of a block, or 1 if it is a row.
    A table's code is whole numbers of magnitudes up to `most`, times 2 ** -`finer`. `grid` is 1 more than the number of
    a type in `GRIDS` whose numbers come from a codebook, which lies after the table; 0: of others.
    """

    low: int
    high: int = 0
    offset: int = 0
    coded: bool = False
    scales: int = FLOATS
    shifts: int = UNSHIFTED
    rounded: int = 0
    finer: int = 0
    most: int = 0
    grid: int = 0

    @property
    def form(self) -> int:
        """The storage format as a number."""
        return (
            BLOCKED
            | self.low
            | self.high << 4
            | self.offset << 6
            | int(self.coded) << 14
            | self.scales << 15
            | self.shifts << 18
            | self.rounded << 21
            | self.finer << 24
            | self.most << 26
            | self.grid << 33
        )

    @classmethod
    def of(cls, form: int) -> "BlockForm":
        """The storage of a format."""
        return cls(
            form & 15,
            form >> 4 & 3,
            form >> 6 & 255,
            bool(form >> 14 & 1),
            form >> 15 & 7,
            form >> 18 & 3,
            form >> 21 & 7,
            form >> 24 & 3,
            form >> 26 & 127,
            form >> 33,
        )

    @property
    def has_totals(self) -> bool:
        """True where products need the sums of the inputs of blocks."""
        return self.shifts != UNSHIFTED or self.offset > 0

    @property
    def by_supers(self) -> bool:
        """True where blocks have whole scales, which a super-block's multiplies."""
        return self.scales in (SIGNED, UNSIGNED)

    @property
    def of_grid(self) -> GridType | None:
        """The type whose numbers come from a codebook."""
        return [*GRIDS.values()][self.grid - 1] if self.grid else None

    @property
    def code_bytes(self) -> int:
        """Bytes of the table: of float32, or of numbers of a byte."""
        return LANES if self.rounded else 4 * LANES

    def field(self, number: int) -> int:
        """The field of the high plane's word that a number of a group has.

        So one shift puts several fields right above their numbers in the low plane.
        """
        stride = self.low // self.high
        return stride * (number % (GROUP // stride)) + number // (GROUP // stride)


FOUR_BIT = BlockForm(4, coded=True).form
SHIFTED = BlockForm(4, coded=True, shifts=ZEROS).form
"""Formats of `layout.FourBit`, the second with zero points."""
