"""The types of tensors in GGUF files: blocks of 32 or 256 numbers with a scale, in K and IQ types one within another.

Source: github.com/ggml-org/ggml, src/ggml-common.h for the bytes of blocks, src/ggml-quants.c for what they stand for.
A type is one entry of `TYPES`; its fields say which bytes of a block are what.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from specchat.engine.errors import ModelError
from specchat.engine.formats.block_fields import WORD, Bits, BlockFields, Half, Plane, ScaleBytes
from specchat.engine.formats.format import Format, StorageLayout, StoredParts
from specchat.engine.formats.grids import GRIDS, GridType, grid_words
from specchat.engine.formats.mxfp4 import Mxfp4, mxfp4
from specchat.engine.formats.settings import Quantised

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.formats.layout import Blocks, FourBit

BLOCK = 32
"""Numbers of a block of the simple types, and of half a pair of blocks in most K types."""
READ_BYTES = 1 << 20
"""Bytes of rows that are taken apart at a time: fresh memory, and calls for little of it, take longer than the work."""
OF_FOUR_BITS = tuple(map(float, (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)))
"""The values of a nibble in the IQ4 types."""


@dataclass(frozen=True)
class BlockType:
    """A type of tensors: `octets` bytes for `size` numbers.

    `offset` and `code` as in `layout.Blocks`; `grid` of a type with a codebook.
    """

    size: int
    octets: int
    layout: StorageLayout
    parts: BlockFields
    offset: int = 0
    code: tuple[float, ...] | None = None
    grid: GridType | None = None

    def read(self, raw: "Tensor", inputs: int) -> "Blocks":
        """Read a matrix from rows of blocks: uint8 [outputs, inputs / size * octets]."""
        import torch

        from specchat.engine.formats.layout import Blocks, GridBlocks

        step = max(1, READ_BYTES // raw.shape[1])
        found = [self._tensors(raw[first : first + step]) for first in range(0, len(raw), step)]
        low, scales, minimums, supers, minimum_supers, high, signs = (
            one[0] if len(one) == 1 or one[0] is None else torch.cat(one) for one in zip(*found, strict=True)
        )
        assert low is not None
        assert scales is not None
        code, bits = None if self.code is None else torch.tensor(self.code), self.layout.bits
        numbers = low, high, scales, minimums, supers, minimum_supers, code, bits, self.offset, self.layout.block
        if self.grid is None:
            return Blocks(*numbers)
        return GridBlocks(*numbers, signs=signs, codebook=grid_words(self.grid), grid=self.grid)

    def _tensors(self, raw: "Tensor") -> "tuple[Tensor | None, ...]":
        """`BlockParts` of rows, each a row as well."""
        parts = self.parts(raw.reshape(-1, self.octets))
        rows = [None if one is None else one.reshape(len(raw), -1).contiguous() for one in parts]
        return tuple(one if one is None or one.storage_offset() % WORD == 0 else one.clone() for one in rows)


def _simple(bits: int, has_minimum: bool) -> BlockFields:
    """Blocks of 32: scale, minimum added and not taken away, fifth bits, nibbles of inputs 16 apart."""
    begin = 4 if has_minimum else 2
    high = Plane(begin, 4, 1) if bits == 5 else None
    minimums = Half(2, negated=True) if has_minimum else None
    return BlockFields(Plane(begin + 4 * (bits - 4), 16, 4, 16), Half(0), minimums, high=high)


def _six_bits(begin: int, right: int) -> ScaleBytes:
    """Eight numbers of six bits: four bytes hold four of them and the highest bits of the others."""
    return ScaleBytes(4, ((Bits(begin, 0, 6),), (Bits(12, right, 4), Bits(begin, 6, 2, 4))))


def _of_nibbles(begin: int, high: Plane | None = None) -> BlockFields:
    """Q4_K and Q5_K; the nibbles begin at byte `begin`."""
    return BlockFields(Plane(begin, 128, 4, 32), _six_bits(4, 0), _six_bits(8, 4), Half(0), Half(2), high)


_Q8_0 = BlockFields(Plane(2, 32, 8, flipped=128), Half(0))
_Q2_K = BlockFields(Plane(16, 64, 2, 32), ScaleBytes(16, ((Bits(0),),)), None, Half(80), Half(82))
_Q3_K = BlockFields(
    Plane(32, 64, 2, 32),
    ScaleBytes(4, tuple((Bits(96 + 4 * (n % 2), 4 * (n // 2), 4), Bits(104, 2 * n, 2, 4)) for n in range(4)), True, 32),
    supers=Half(108),
    high=Plane(0, 32, 1, 32),
)
_Q6_K = BlockFields(
    Plane(0, 128, 4, 64), ScaleBytes(16, ((Bits(192),),), True), supers=Half(208), high=Plane(128, 64, 2, 32)
)
_IQ4_XS = BlockFields(
    Plane(8, 128, 4, 16),
    ScaleBytes(
        1, tuple((Bits(4 + n // 2, 4 * (n % 2), 4), Bits(2 + n // 4, 2 * (n % 4), 2, 4)) for n in range(8)), True, 32
    ),
    supers=Half(0),
)


_IQ2_XXS = BlockFields(Plane(2, 32, 1, every=2), Plane(6, 32, 4, every=2), supers=Half(0))
_IQ2_XS = BlockFields(Plane(2, 64, 2), ScaleBytes(8, ((Bits(66),),)), supers=Half(0))
_IQ2_S = BlockFields(
    Plane(2, 32, 1), ScaleBytes(8, ((Bits(74),),)), supers=Half(0), high=Plane(66, 8, 1), signs=Plane(34, 32, 1)
)
_IQ3_XXS = BlockFields(Plane(2, 64, 2), Plane(66, 32, 4), supers=Half(0))
_IQ3_S = BlockFields(
    Plane(2, 64, 2), ScaleBytes(4, ((Bits(106),),)), supers=Half(0), high=Plane(66, 8, 1), signs=Plane(74, 32, 1)
)


def _layout(bits: int, block: int, minimums: bool = False, code: str = "") -> StorageLayout:
    return StorageLayout(bits, block, "supers", minimums="apart" if minimums else "none", code=code)


def _of_grid(name: str, octets: int, bits: int, block: int, parts: BlockFields) -> BlockType:
    """A type with a codebook, of numbers of so many bits."""
    grid = GRIDS[name]
    scales = 0 if grid.signs == "in scales" else 256 // block // 2
    layout = replace(_layout(bits, block, code=name), octets=octets, octets_apart=scales + 2)
    return BlockType(256, octets, layout, parts, code=grid.code, grid=grid)


_LAYOUTS = {
    (bits, added): StorageLayout(bits, BLOCK, "half", minimums="apart" if added else "none")
    for bits in (4, 5, 8)
    for added in (False, True)
}
TYPES = {
    "Q4_0": BlockType(32, 18, _LAYOUTS[4, False], _simple(4, False), 8),
    "Q4_1": BlockType(32, 20, _LAYOUTS[4, True], _simple(4, True)),
    "Q5_0": BlockType(32, 22, _LAYOUTS[5, False], _simple(5, False), 16),
    "Q5_1": BlockType(32, 24, _LAYOUTS[5, True], _simple(5, True)),
    "Q8_0": BlockType(32, 34, _LAYOUTS[8, False], _Q8_0, 128),
    "Q2_K": BlockType(256, 84, StorageLayout(2, 16, "supers", minimums="paired"), _Q2_K),
    "Q3_K": BlockType(256, 110, _layout(3, 16), _Q3_K, 4),
    "Q4_K": BlockType(256, 144, _layout(4, BLOCK, True), _of_nibbles(16)),
    "Q5_K": BlockType(256, 176, _layout(5, BLOCK, True), _of_nibbles(48, Plane(16, 32, 1, 32))),
    "Q6_K": BlockType(256, 210, _layout(6, 16), _Q6_K, 32),
    "IQ4_NL": BlockType(32, 18, replace(_LAYOUTS[4, False], code="IQ4"), _simple(4, False), code=OF_FOUR_BITS),
    "IQ4_XS": BlockType(256, 136, _layout(4, BLOCK, code="IQ4"), _IQ4_XS, code=OF_FOUR_BITS),
    "IQ3_XXS": _of_grid("IQ3_XXS", 98, 4, BLOCK, _IQ3_XXS),
    "IQ3_S": _of_grid("IQ3_S", 110, 4, BLOCK, _IQ3_S),
    "IQ2_XXS": _of_grid("IQ2_XXS", 66, 3, BLOCK, _IQ2_XXS),
    "IQ2_XS": _of_grid("IQ2_XS", 74, 3, 16, _IQ2_XS),
    "IQ2_S": _of_grid("IQ2_S", 82, 3, 16, _IQ2_S),
}
"""Types by the names that GGUF has for them."""
MXFP4 = "MXFP4"
MXFP4_FIELDS = BlockFields(Plane(1, 16, 4, 16), ScaleBytes(1, ((Bits(0),),)))
"""A block: an exponent, and nibbles of inputs 16 apart."""
SIZES = {name: (kind.size, kind.octets) for name, kind in TYPES.items()} | {MXFP4: (BLOCK, 17)}
"""Numbers and bytes of a block, by types."""
FIELDS = {name: kind.parts for name, kind in TYPES.items()} | {MXFP4: MXFP4_FIELDS}
"""The bytes of a block, by types."""


@cache
def block_of_zeros(kind: str) -> "Blocks | FourBit":
    """A matrix of one block of a type, of zero bytes."""
    import torch

    size, octets = SIZES[kind]
    return _read(kind, torch.zeros(1, octets, dtype=torch.uint8), (1, size), kind)


def _read(kind: str, raw: "Tensor", shape: tuple[int, int], where: str) -> "Blocks | FourBit":
    """A matrix of rows of blocks; `where` begins a message."""
    if kind in TYPES:
        return TYPES[kind].read(raw, shape[1])
    parts = MXFP4_FIELDS(raw.reshape(-1, SIZES[kind][1]))
    nibbles, exponents = parts.low.view(len(raw), -1, 16), parts.scales.view(len(raw), -1)
    return mxfp4(nibbles, exponents, shape, where)


@dataclass(frozen=True)
class Gguf(Format):
    """Matrices of a GGUF file, each in a type of its own: the name of the type by the name of the matrix."""

    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    quant = "gguf"
    by_name = True
    int8_rows = True

    def stated(self, settings: Quantised) -> None:
        return None

    def holds(self, source: StoredParts, name: str) -> bool:
        kind = source.stored_dtype(f"{name}.weight")
        return kind in SIZES

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        kind = self.types.get(name, "")
        return Mxfp4().layout(inputs) if kind == MXFP4 else TYPES[kind].layout if kind in TYPES else None

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "Blocks | FourBit":
        """Read a matrix from bytes: uint8 [outputs, bytes of a row]."""
        import torch

        from specchat.engine.formats.layout import Blocks

        raw, kind = source.part(f"{name}.weight"), source.stored_dtype(f"{name}.weight")
        (outputs, inputs), (size, octets) = shape, SIZES[kind]
        if inputs % size or tuple(raw.shape) != (outputs, inputs // size * octets):
            raise ModelError(
                f"{source.folder}: {name} has {raw.numel()} bytes, not those of {outputs}x{inputs} {kind}."
            )
        found = _read(kind, raw, shape, f"{source.folder}, {name}")
        halves = (found.supers, found.minimum_supers, found.scales, found.minimums) if isinstance(found, Blocks) else ()
        for scales in halves:
            if scales is not None and scales.dtype == torch.float16 and not scales.isfinite().all():
                raise ModelError(f"{source.folder}: {name} has scales that are no numbers. Download the file again.")
        return found


FORMATS = (Gguf(),)
