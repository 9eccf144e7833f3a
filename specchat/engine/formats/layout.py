"""Memory layouts of quantised weights: those of bitsandbytes, so that its checkpoints load unchanged, and blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import Tensor

from specchat.engine.formats.gpu_blocks import GridWords, InWords, WordBlocks, bits_of_low
from specchat.engine.formats.grids import SUPER_BLOCK, GridType


@dataclass(frozen=True)
class Nested:
    """Double quantisation of the block scales (QLoRA, Dettmers et al. 2023): scale = code[u8] * absmax + offset.

    `code` float32 [256]; `absmax` float32 [outputs * blocks a row / 256], over the flattened scales; `offset` float32
    [outputs], one a row because each of the fused weights has its own. Without these two `code` is a table of scales.
    """

    code: Tensor
    absmax: Tensor | None = None
    offset: Tensor | None = None


@dataclass(frozen=True)
class FourBit:
    """4-bit weights: weight[n, k] = (code[nibble] - zero) * scale, both of its block of `block` consecutive inputs.

    `packed` uint8 [outputs, inputs / 2], the high nibble being the even input; `code` float32 [16]; `scales` float32
    [outputs, inputs / block], or uint8 of that shape, quantised by `nested`; `zeros` int8 of that shape, of codes of
    whole numbers, whose differences are exact; None: no block has one. `order` int32 [inputs]: weight k is that of
    input order[k] of a row; None: of input k; of experts int32 [experts, inputs]. `packed`, `scales` and
    `zeros` start at multiples of 4 bytes.
    """

    packed: Tensor
    scales: Tensor
    code: Tensor
    block: int
    nested: Nested | None = None
    zeros: Tensor | None = None
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return self.packed.shape[0], 2 * self.packed.shape[1]


@dataclass(frozen=True)
class EightBit:
    """Row-wise int8 weights: weight[n, k] = values[n, k] * scales[n] (LLM.int8, Dettmers et al. 2022).

    `values` int8 [outputs, inputs]; `scales` float32 [outputs], the row's largest magnitude / 127.
    """

    values: Tensor
    scales: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return self.values.shape[0], self.values.shape[1]


@dataclass(frozen=True)
class Blocks:
    """Weights of 2 to 8 bits in blocks: weight[n, k] = scale * value - minimum, both of its `block` inputs.

    A number q of `bits` bits stands for the value code[q], or q - `offset` without a code. `low` has its lowest bits,
    8, 4 or 2 of them (`low_bits`), and `high` the others. Both hold the numbers of a row one after another, each from
    the lowest bits of a byte on. All products of a value, a scale and its super-block's are exact in float32.

    Attributes:
        low: uint8 [outputs, inputs * low_bits / 8].
        high: uint8 [outputs, inputs * (bits - low_bits) / 8]; None where low has all bits.
        scales: float16 [outputs, inputs / block]; with `supers` int8 or uint8, which these multiply.
        minimums: of the same shape and dtype; None: all are 0, or, with `minimum_supers`, they are the high four bits
            of `scales`, whose low four are the scale.
        supers, minimum_supers: float16 [outputs, inputs / SUPER_BLOCK], of the scales and the minimums.
        code: float32 [2 ** bits], of 3 or 4 bits.
        block: 16 or 32.
        order: as that of `FourBit`.
    """

    low: Tensor
    high: Tensor | None
    scales: Tensor
    minimums: Tensor | None
    supers: Tensor | None
    minimum_supers: Tensor | None
    code: Tensor | None
    bits: int
    offset: int
    block: int
    order: Tensor | None = None

    @property
    def low_bits(self) -> int:
        """Bits of a number in `low`."""
        return bits_of_low(self.bits)

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return self.low.shape[0], self.low.shape[1] * 8 // self.low_bits


@dataclass(frozen=True, kw_only=True)
class GridBlocks(Blocks):
    """Blocks whose numbers are rows of a codebook and signs, in the bits of their file.

    Weights are code[number] * scale, numbers of four bits (`grids.grid_numbers`), scales odd (`grids.grid_scales`)
    times those of super-blocks.

    Attributes:
        low: the lowest 8 bits of numbers of rows, or 16 of a number and signs: uint8 [outputs, bytes].
        high: the others, 2 bits for 8 inputs, or None.
        scales: 4 bits for each block, uint8 [outputs, bytes], or words of 32 bits with signs.
        bits: of a magnitude and its sign.
        signs: uint8 [outputs, inputs / 8]; None: they lie beside numbers of rows or scales.
        codebook: int32 [rows] (`grids.grid_words`).
        grid: tells where signs lie.
    """

    signs: Tensor | None
    codebook: Tensor
    grid: GridType

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        assert self.supers is not None
        return self.supers.shape[0], self.supers.shape[1] * SUPER_BLOCK


class Unread(Exception):
    """`FileRows` have to be read from their file in the general way."""


@dataclass(frozen=True)
class FileRows:
    """Weights in blocks as a GGUF file has them, for a reader of its bytes.

    Attributes:
        rows: int64 [outputs], the address of each output's blocks in memory; 0: zeros.
        kind: type of the blocks (`gguf.FIELDS`).
        held: tensors that the rows lie in.
    """

    rows: Tensor
    kind: str
    inputs: int
    held: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return len(self.rows), self.inputs


@dataclass(frozen=True)
class Joined:
    """Matrices of unlike storage and the same inputs, one after another along the outputs.

    For a GPU each part of experts has its outputs of all of them, expert after expert (`quantise.by_experts`).
    """

    parts: "tuple[Plain, ...]"

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]


Table = Tensor | Blocks
"""Rows of tokens [tokens, values]."""
Plain = Tensor | FourBit | EightBit | Blocks | InWords | FileRows
"""Matrix [outputs, inputs] of one storage; a plain tensor is dense."""
Weight = Plain | Joined
"""Matrix [outputs, inputs] in any of the formats."""
Stored = TypeVar("Stored", bound=Weight)


def values_of(weight: Weight) -> Tensor:
    """The values of a weight, without their scales; of several parts those of the first."""
    match weight:
        case (
            FourBit(packed=values)
            | EightBit(values=values)
            | Blocks(low=values)
            | WordBlocks(low=values)
            | GridWords(low=values)
            | FileRows(rows=values)
        ):
            return values
        case Joined(parts=parts):
            return values_of(parts[0])
        case _:
            return weight


def mapped(weight: Stored, of: Callable[[Tensor], Tensor]) -> Stored:
    """A weight of what `of` makes of each tensor of `weight`."""
    made: Stored = _mapped(weight, of)
    return made


def _mapped(part: Any, of: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(part, Tensor):
        return of(part)
    if isinstance(part, tuple):
        return tuple(_mapped(one, of) for one in part)
    within = (Tensor, Nested, tuple)
    return replace(part, **{name: _mapped(one, of) for name, one in vars(part).items() if isinstance(one, within)})


def tensors_of(weight: Weight) -> list[Tensor]:
    """All tensors of a weight."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(weight, note)
    return found
