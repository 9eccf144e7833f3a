"""Blocks in memory in the order in which the kernels of a GPU read them (`words.in_words`)."""

from dataclasses import dataclass

from torch import Tensor

from specchat.engine.formats.grids import SUPER_BLOCK, GridType


def bits_of_low(bits: int) -> int:
    """Bits of a number of so many that stand in the plane of the lowest ones."""
    return 8 if bits == 8 else 4 if bits >= 4 else 2


@dataclass(frozen=True)
class WordBlocks:
    """`layout.Blocks` as kernels read them.

    Numbers of whole words of 32 bits stand in units, 8 bits or, of a code, 4 bits wide: number i has unit i modulo
    their count, and the next ones follow in higher bits of the units. As in `layout.FourBit`, the high half of a byte
    is the even one of two units of 4 bits.

    Attributes:
        low, high: int32 [outputs, inputs * bits / 32], the bits as in `layout.Blocks`.
        scales: as in `layout.Blocks`; minimums of bytes are among them: two scales, then the minimums of these blocks.
        minimums: float16 [outputs, inputs / block].
        supers: float32 [outputs, inputs / SUPER_BLOCK], of OF_HALVES bits float16; with minimums float16
            [outputs, inputs / SUPER_BLOCK, 2], of the scales and of the minimums.
        code: float32 [16], the values of numbers; or uint8 [1], what is taken away from a number.
    """

    low: Tensor
    high: Tensor | None
    scales: Tensor
    minimums: Tensor | None
    supers: Tensor | None
    code: Tensor
    bits: int
    block: int
    order: Tensor | None = None

    @property
    def low_bits(self) -> int:
        """Bits of a number in `low`."""
        return bits_of_low(self.bits)

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return self.low.shape[0], self.low.shape[1] * 32 // self.low_bits

    @property
    def minimums_in(self) -> str:
        """Storage of the minimums of blocks: "none", "halves", "bytes", or "nibbles" of the bytes of scales."""
        if self.supers is None or self.supers.dim() == 2:
            return "none" if self.minimums is None else "halves"
        return "bytes" if self.scales.shape[1] * self.block > self.shape[1] else "nibbles"


@dataclass(frozen=True)
class GridWords:
    """`layout.GridBlocks` as kernels read them.

    Attributes:
        low: int32 [outputs, bytes / 4], the lowest 8 bits of numbers of rows.
        high, grid, bits, block, order: as in `layout.GridBlocks`.
        signs: int32 [outputs, inputs / 32], a bit for each input, in units of 8 bits as in `WordBlocks`. The bits of
            eighth signs that follow from the others are the scale of 32 inputs, or ninth bits of numbers of rows.
        scales: 4 bits for each block, uint8 [outputs, bytes]; None: they are among the signs.
        supers: float32 [outputs, inputs / SUPER_BLOCK].
        code: float32 [16], the values of numbers.
        codebook: int64 [5 + rows / 2]: the address of the rows on the device where the weight came to this order;
            int32 [8], the shifts of the scales in a word; and the rows, as in `layout.GridBlocks`. Kernels must load
            what they make weights of (`kernels.unpack_blocks`).
    """

    low: Tensor
    high: Tensor | None
    signs: Tensor
    scales: Tensor | None
    supers: Tensor
    code: Tensor
    codebook: Tensor
    grid: GridType
    bits: int
    block: int
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return self.supers.shape[0], self.supers.shape[1] * SUPER_BLOCK


InWords = WordBlocks | GridWords
"""Blocks in either form."""
