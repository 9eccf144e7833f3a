"""The types of tensors in GGUF files: blocks of 32 or 256 numbers with a scale, in K and IQ types one within another.

Source: github.com/ggml-org/ggml, src/ggml-common.h for the bytes of blocks, src/ggml-quants.c for what they stand for.
A type is one entry of `TYPES`; its function takes the bytes of blocks apart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from specchat.engine.errors import ModelError
from specchat.engine.formats.codebooks import codebook
from specchat.engine.formats.format import Format, StorageLayout, StoredParts
from specchat.engine.formats.mxfp4 import Mxfp4, mxfp4
from specchat.engine.formats.settings import Quantised

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.formats.layout import Blocks, FourBit

BLOCK = 32
"""Numbers of a block of the simple types, and of half a pair of blocks in most K types."""
OCTET = 8
"""Bits of a byte."""
READ_BYTES = 1 << 20
"""Bytes of rows that are taken apart at a time: fresh memory, and calls for little of it, take longer than the work."""
OF_FOUR_BITS = tuple(map(float, (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)))
"""The values of a nibble in the IQ4 types."""
OF_TWO_BITS = (1.0, 3.125, 5.375, 0.0)
OF_THREE_BITS = {
    "IQ3_XXS": (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.5),
    "IQ3_S": (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0),
}
"""Magnitudes of the IQ2 types, an eighth of the file's, and of the IQ3 types, those of IQ3_XXS a quarter: a scale here
is an odd number times that of the super-block."""


class BlockParts(NamedTuple):
    """Blocks taken apart; n are the blocks of the file.

    `low` and `high` are those of `layout.Blocks`, uint8 [n, bytes of a block]; `scales` and `minimums` [n, scales of a
    block]; `supers` and `minimum_supers` float16 [n, 1], of types with super-blocks.
    """

    low: "Tensor"
    scales: "Tensor"
    minimums: "Tensor | None" = None
    supers: "Tensor | None" = None
    minimum_supers: "Tensor | None" = None
    high: "Tensor | None" = None


class Plane(NamedTuple):
    """Numbers of `bits` bits in bytes `begin` to `begin + octets` of a block.

    `run` bytes hold the lowest bits of `run` numbers, then the next bits of as many; 0: a byte's numbers follow each
    other. Bits of `flipped` are the other way round in memory.
    """

    begin: int
    octets: int
    bits: int
    run: int = 0
    flipped: int = 0

    def read(self, raw: "Tensor") -> "Tensor":
        """The bytes of a plane of `layout.Blocks`: uint8 [n, octets]."""
        octets = raw[:, self.begin : self.begin + self.octets]
        octets = octets ^ self.flipped if self.flipped else octets
        return _plane(octets, self.bits, self.run) if self.run else octets


class Bits(NamedTuple):
    """`bits` bits of each of some bytes from `begin` on: those from bit `right` on become those from bit `left` on."""

    begin: int
    right: int = 0
    bits: int = 8
    left: int = 0


class ScaleBytes(NamedTuple):
    """Numbers of a byte each: words of `width` numbers, each word the sum of some bits, less `offset` if `signed`."""

    width: int
    words: tuple[tuple[Bits, ...], ...]
    signed: bool = False
    offset: int = 0

    def read(self, raw: "Tensor") -> "Tensor":
        """The numbers: uint8 or int8 [n, numbers of a block]."""
        import torch

        words = [self._word(raw, bits) for bits in self.words]
        found = words[0] if len(words) == 1 else torch.cat(words, 1)
        return found.view(torch.int8) - self.offset if self.signed else found

    def _word(self, raw: "Tensor", parts: tuple[Bits, ...]) -> "Tensor":
        import torch

        octets = [raw[:, part.begin : part.begin + self.width] for part in parts]
        if parts[0].bits == OCTET:
            return octets[0]
        packed = torch.contiguous_format
        # Words of four bytes take a quarter of the operations.
        kind, each = (torch.int32, 0x01010101) if self.width % 4 == 0 else (torch.uint8, 1)
        found = [
            (one.clone(memory_format=packed).view(kind) >> part.right & each * ((1 << part.bits) - 1)) << part.left
            for one, part in zip(octets, parts, strict=True)
        ]
        return (found[0] if len(found) == 1 else found[0] | found[1]).view(torch.uint8)


class Half(NamedTuple):
    """A float16 at byte `begin` of a block, of the other sign if `negated`."""

    begin: int
    negated: bool = False

    def read(self, raw: "Tensor") -> "Tensor":
        """The numbers: float16 [n, 1]."""
        found = _halves(raw[:, self.begin : self.begin + 2])
        return -found if self.negated else found


class BlockFields(NamedTuple):
    """The bytes of each of `BlockParts`."""

    low: Plane
    scales: ScaleBytes | Half
    minimums: ScaleBytes | Half | None = None
    supers: Half | None = None
    minimum_supers: Half | None = None
    high: Plane | None = None

    def __call__(self, raw: "Tensor") -> BlockParts:
        """Take blocks apart: uint8 [n, bytes of a block]."""
        return BlockParts(*(None if one is None else one.read(raw) for one in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class BlockType:
    """A type of tensors: `octets` bytes for `size` numbers.

    `offset` and `code` as in `layout.Blocks`.
    """

    size: int
    octets: int
    layout: StorageLayout
    parts: "BlockFields | Callable[[Tensor], BlockParts]"
    offset: int = 0
    code: tuple[float, ...] | None = None

    def read(self, raw: "Tensor", inputs: int) -> "Blocks":
        """Read a matrix from rows of blocks: uint8 [outputs, inputs / size * octets]."""
        import torch

        from specchat.engine.formats.layout import Blocks

        step = max(1, READ_BYTES // raw.shape[1])
        found = [self._tensors(raw[first : first + step]) for first in range(0, len(raw), step)]
        low, scales, minimums, supers, minimum_supers, high = (
            one[0] if len(one) == 1 or one[0] is None else torch.cat(one) for one in zip(*found, strict=True)
        )
        assert low is not None
        assert scales is not None
        code, bits = None if self.code is None else torch.tensor(self.code), self.layout.bits
        block = self.layout.block
        return Blocks(low, high, scales, minimums, supers, minimum_supers, code, bits, self.offset, block)

    def _tensors(self, raw: "Tensor") -> "tuple[Tensor | None, ...]":
        """`BlockParts` of rows, each a row as well."""
        parts = self.parts(raw.reshape(-1, self.octets))
        return tuple(None if one is None else one.reshape(len(raw), -1).contiguous() for one in parts)


def _halves(octets: "Tensor") -> "Tensor":
    import torch

    return octets.view(torch.float16)


def _fields(octets: "Tensor", bits: int, run: int) -> "Tensor":
    """Numbers of so many bits: `run` bytes hold the lowest bits of `run` numbers, then the next bits of as many."""
    import torch

    runs = octets.unflatten(-1, (-1, run))
    return torch.stack([runs >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)], -2).flatten(1)


def _plane(octets: "Tensor", bits: int, run: int) -> "Tensor":
    """The numbers of `_fields` in the bytes of a plane; runs are of whole words of 64 bits.

    Eight bytes at a time take an eighth of the operations, and a run of a plane is moved in the largest numbers.
    """
    import torch

    from specchat.engine.formats.quantise import joined_fields

    flat = octets.contiguous().view(-1)
    words = (flat.clone() if flat.storage_offset() % 8 else flat).view(torch.int64)
    mask = int.from_bytes(bytes([(1 << bits) - 1] * 8), "little")
    size = run * bits // 8
    moved = torch.complex128 if size % 16 == 0 else torch.int64 if size % 8 == 0 else torch.int32
    found = torch.empty(len(octets), octets.shape[1] // run, 8 // bits, size, dtype=torch.uint8)
    for number in range(8 // bits):
        joined = joined_fields((words >> bits * number).bitwise_and_(mask), bits)
        found.view(moved)[:, :, number] = joined.view(len(octets), -1, size).view(moved)
    return found.flatten(1)


def _in_turn(octets: "Tensor", bits: int) -> "Tensor":
    """Numbers of so many bits, all of one byte after another."""
    return _fields(octets, bits, 1)


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


def _coded(name: str, rows: "Tensor", signs: "Tensor", scales: "Tensor", supers: "Tensor") -> BlockParts:
    """Numbers of magnitudes and signs: rows of a codebook [n, rows], a sign bit for each number in bytes [n, size / 8].

    The bit above those of a magnitude is its sign.
    """
    from specchat.engine.formats.quantise import from_fields

    numbers = codebook(name)[rows.int()].flatten(1)
    if name.startswith("IQ3"):
        return BlockParts(from_fields(numbers | _in_turn(signs, 1) << 3, 4), 2 * scales + 1, None, supers)
    return BlockParts(from_fields(numbers, 2), 2 * scales + 1, None, supers, high=signs)


def _of_words(octets: "Tensor") -> "tuple[Tensor, Tensor]":
    """Bytes of eight signs [n, 4 words], and a scale [n, words], of words of four times seven bits and four.

    The eighth sign makes the number of negative ones even.
    """
    import torch

    words = octets.contiguous().view(torch.int32)
    sevens = torch.stack([words >> shift & 127 for shift in (0, 7, 14, 21)], -1).flatten(1)
    return _even(sevens), (words >> 28 & 15).to(torch.uint8)


def _even(sevens: "Tensor") -> "Tensor":
    """Bytes of eight signs of which the first seven are known, and an even number negative."""
    import torch

    folded = sevens ^ sevens >> 4
    folded = folded ^ folded >> 2
    return (sevens | ((folded ^ folded >> 1) & 1) << 7).to(torch.uint8)


def _iq3_xxs(raw: "Tensor") -> BlockParts:
    signs, scales = _of_words(raw[:, 66:])
    return _coded("IQ3_XXS", raw[:, 2:66], signs, scales, _halves(raw[:, :2]))


def _iq3_s(raw: "Tensor") -> BlockParts:
    rows = raw[:, 2:66].int() | _in_turn(raw[:, 66:74], 1).int() << 8
    return _coded("IQ3_S", rows, raw[:, 74:106], _in_turn(raw[:, 106:], 4), _halves(raw[:, :2]))


def _iq2_xxs(raw: "Tensor") -> BlockParts:
    words = raw[:, 2:].unflatten(1, (-1, 2, 4))
    signs, scales = _of_words(words[:, :, 1].flatten(1))
    return _coded("IQ2_XXS", words[:, :, 0].flatten(1), signs, scales, _halves(raw[:, :2]))


def _iq2_xs(raw: "Tensor") -> BlockParts:
    import torch

    words = raw[:, 2:66].contiguous().view(torch.int16).int()
    scales = _in_turn(raw[:, 66:], 4)
    return _coded("IQ2_XS", words & 511, _even(words >> 9 & 127), scales, _halves(raw[:, :2]))


def _iq2_s(raw: "Tensor") -> BlockParts:
    rows = raw[:, 2:34].int() | _in_turn(raw[:, 66:74], 2).int() << 8
    return _coded("IQ2_S", rows, raw[:, 34:66], _in_turn(raw[:, 74:], 4), _halves(raw[:, :2]))


def _layout(bits: int, block: int, minimums: bool = False, code: str = "") -> StorageLayout:
    return StorageLayout(bits, block, "supers", minimums="apart" if minimums else "none", code=code)


def _both(magnitudes: tuple[float, ...]) -> tuple[float, ...]:
    return *magnitudes, *(-one for one in magnitudes)


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
    "IQ3_XXS": BlockType(256, 98, _layout(4, BLOCK, code="IQ3_XXS"), _iq3_xxs, code=_both(OF_THREE_BITS["IQ3_XXS"])),
    "IQ3_S": BlockType(256, 110, _layout(4, BLOCK, code="IQ3_S"), _iq3_s, code=_both(OF_THREE_BITS["IQ3_S"])),
    "IQ2_XXS": BlockType(256, 66, _layout(3, BLOCK, code="IQ2"), _iq2_xxs, code=_both(OF_TWO_BITS)),
    "IQ2_XS": BlockType(256, 74, _layout(3, 16, code="IQ2"), _iq2_xs, code=_both(OF_TWO_BITS)),
    "IQ2_S": BlockType(256, 82, _layout(3, 16, code="IQ2"), _iq2_s, code=_both(OF_TWO_BITS)),
}
"""Types by the names that GGUF has for them."""
MXFP4 = "MXFP4"
MXFP4_FIELDS = BlockFields(Plane(1, 16, 4, 16), ScaleBytes(1, ((Bits(0),),)))
"""A block: an exponent, and nibbles of inputs 16 apart."""
SIZES = {name: (kind.size, kind.octets) for name, kind in TYPES.items()} | {MXFP4: (BLOCK, 17)}
"""Numbers and bytes of a block, by types."""
FIELDS = {name: kind.parts for name, kind in TYPES.items() if isinstance(kind.parts, BlockFields)} | {
    MXFP4: MXFP4_FIELDS
}
"""The bytes of a block, of types without a codebook."""


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
