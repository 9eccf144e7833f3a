"""The types of tensors in GGUF files: blocks of 32 or 256 numbers with a scale, in K and IQ types one within another.

Source: github.com/ggml-org/ggml, src/ggml-common.h for the bytes of blocks, src/ggml-quants.c for what they stand for.
A type is one entry of `TYPES`; its function takes the bytes of blocks apart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class BlockType:
    """A type of tensors: `octets` bytes for `size` numbers.

    `offset` and `code` as in `layout.Blocks`.
    """

    size: int
    octets: int
    layout: StorageLayout
    parts: "Callable[[Tensor], BlockParts]"
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


def _signed(octets: "Tensor") -> "Tensor":
    import torch

    return octets.view(torch.int8)


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


def _simple(bits: int, has_minimum: bool) -> "Callable[[Tensor], BlockParts]":
    """Blocks of 32: scale, minimum added and not taken away, fifth bits, nibbles of inputs 16 apart."""

    def parts(raw: "Tensor") -> BlockParts:
        begin = 4 if has_minimum else 2
        minimums = -_halves(raw[:, 2:4]) if has_minimum else None
        high = raw[:, begin : begin + 4] if bits == 5 else None
        return BlockParts(_plane(raw[:, -16:], 4, 16), _halves(raw[:, :2]), minimums, high=high)

    return parts


def _q8_0(raw: "Tensor") -> BlockParts:
    # Signed numbers, raised to those from 0 to 255.
    return BlockParts(raw[:, 2:] ^ 128, _halves(raw[:, :2]))


def _q2_k(raw: "Tensor") -> BlockParts:
    return BlockParts(_plane(raw[:, 16:80], 2, 32), raw[:, :16], None, _halves(raw[:, 80:82]), _halves(raw[:, 82:]))


def _q3_k(raw: "Tensor") -> BlockParts:
    scales = _fields(raw[:, 96:104], 4, 8) | _fields(raw[:, 104:108], 2, 4) << 4
    low, high = _plane(raw[:, 32:96], 2, 32), _plane(raw[:, :32], 1, 32)
    return BlockParts(low, _signed(scales) - 32, None, _halves(raw[:, 108:]), high=high)


def _six_bits(octets: "Tensor") -> "tuple[Tensor, Tensor]":
    """Eight scales and eight minimums of six bits from twelve bytes."""
    import torch

    # Words of four bytes.
    scale, minimum, rest = octets.view(torch.int32).unbind(1)
    of_six, of_four, of_two = 0x3F3F3F3F, 0x0F0F0F0F, 0x03030303
    words = [
        scale & of_six,
        rest & of_four | (scale >> 6 & of_two) << 4,
        minimum & of_six,
        rest >> 4 & of_four | (minimum >> 6 & of_two) << 4,
    ]
    scales, minimums = torch.stack(words, 1).view(torch.uint8).chunk(2, 1)
    return scales, minimums


def _q4_k(raw: "Tensor") -> BlockParts:
    scales, minimums = _six_bits(raw[:, 4:16])
    return BlockParts(_plane(raw[:, -128:], 4, 32), scales, minimums, _halves(raw[:, :2]), _halves(raw[:, 2:4]))


def _q5_k(raw: "Tensor") -> BlockParts:
    return _q4_k(raw)._replace(high=_plane(raw[:, 16:48], 1, 32))


def _q6_k(raw: "Tensor") -> BlockParts:
    low, high = _plane(raw[:, :128], 4, 64), _plane(raw[:, 128:192], 2, 32)
    return BlockParts(low, _signed(raw[:, 192:208]), None, _halves(raw[:, 208:]), high=high)


def _iq4_nl(raw: "Tensor") -> BlockParts:
    return BlockParts(_plane(raw[:, 2:], 4, 16), _halves(raw[:, :2]))


def _iq4_xs(raw: "Tensor") -> BlockParts:
    scales = _in_turn(raw[:, 4:8], 4) | _in_turn(raw[:, 2:4], 2) << 4
    return BlockParts(_plane(raw[:, 8:], 4, 16), _signed(scales) - 32, None, _halves(raw[:, :2]))


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
    "Q8_0": BlockType(32, 34, _LAYOUTS[8, False], _q8_0, 128),
    "Q2_K": BlockType(256, 84, StorageLayout(2, 16, "supers", minimums="paired"), _q2_k),
    "Q3_K": BlockType(256, 110, _layout(3, 16), _q3_k, 4),
    "Q4_K": BlockType(256, 144, _layout(4, BLOCK, True), _q4_k),
    "Q5_K": BlockType(256, 176, _layout(5, BLOCK, True), _q5_k),
    "Q6_K": BlockType(256, 210, _layout(6, 16), _q6_k, 32),
    "IQ4_NL": BlockType(32, 18, replace(_LAYOUTS[4, False], code="IQ4"), _iq4_nl, code=OF_FOUR_BITS),
    "IQ4_XS": BlockType(256, 136, _layout(4, BLOCK, code="IQ4"), _iq4_xs, code=OF_FOUR_BITS),
    "IQ3_XXS": BlockType(256, 98, _layout(4, BLOCK, code="IQ3_XXS"), _iq3_xxs, code=_both(OF_THREE_BITS["IQ3_XXS"])),
    "IQ3_S": BlockType(256, 110, _layout(4, BLOCK, code="IQ3_S"), _iq3_s, code=_both(OF_THREE_BITS["IQ3_S"])),
    "IQ2_XXS": BlockType(256, 66, _layout(3, BLOCK, code="IQ2"), _iq2_xxs, code=_both(OF_TWO_BITS)),
    "IQ2_XS": BlockType(256, 74, _layout(3, 16, code="IQ2"), _iq2_xs, code=_both(OF_TWO_BITS)),
    "IQ2_S": BlockType(256, 82, _layout(3, 16, code="IQ2"), _iq2_s, code=_both(OF_TWO_BITS)),
}
"""Types by the names that GGUF has for them."""
MXFP4 = "MXFP4"
MXFP4_OCTETS = 17
"""Bytes of a block: an exponent, and nibbles of inputs 16 apart."""


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
        return kind in TYPES or kind == MXFP4

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        kind = self.types.get(name, "")
        return Mxfp4().layout(inputs) if kind == MXFP4 else TYPES[kind].layout if kind in TYPES else None

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "Blocks | FourBit":
        """Read a matrix from bytes: uint8 [outputs, bytes of a row]."""
        import torch

        raw, kind = source.part(f"{name}.weight"), source.stored_dtype(f"{name}.weight")
        (outputs, inputs), known = shape, TYPES.get(kind)
        size, octets = (BLOCK, MXFP4_OCTETS) if known is None else (known.size, known.octets)
        if inputs % size or tuple(raw.shape) != (outputs, inputs // size * octets):
            raise ModelError(
                f"{source.folder}: {name} has {raw.numel()} bytes, not those of {outputs}x{inputs} {kind}."
            )
        if known is None:
            blocks = raw.reshape(outputs, -1, octets)
            nibbles = _plane(blocks[..., 1:].flatten(0, 1), 4, 16).view(outputs, -1, 16)
            return mxfp4(nibbles, blocks[..., 0], shape, f"{source.folder}, {name}")
        found = known.read(raw, inputs)
        for scales in (found.supers, found.minimum_supers, found.scales, found.minimums):
            if scales is not None and scales.dtype == torch.float16 and not scales.isfinite().all():
                raise ModelError(f"{source.folder}: {name} has scales that are no numbers. Download the file again.")
        return found


FORMATS = (Gguf(),)
