"""The bytes of blocks in files: planes of numbers of a few bits, scales, and float16, which tensors are made of."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

OCTET = 8
"""Bits of a byte."""
WORD = 4
"""Bytes of a word."""


class BlockParts(NamedTuple):
    """Blocks taken apart; n are the blocks of the file.

    `low` and `high` are those of `layout.Blocks`, uint8 [n, bytes of a block]; `scales` and `minimums` [n, scales of a
    block]; `supers` and `minimum_supers` float16 [n, 1], of types with super-blocks; `signs` of `layout.GridBlocks`.
    """

    low: "Tensor"
    scales: "Tensor"
    minimums: "Tensor | None" = None
    supers: "Tensor | None" = None
    minimum_supers: "Tensor | None" = None
    high: "Tensor | None" = None
    signs: "Tensor | None" = None


class Plane(NamedTuple):
    """Numbers of `bits` bits in `octets` bytes from byte `begin` of a block on.

    `run` bytes hold the lowest bits of `run` numbers, then the next bits of as many; 0: a byte's numbers follow each
    other. Bits of `flipped` are the other way round in memory. The bytes are those of each `every`-th WORD.
    """

    begin: int
    octets: int
    bits: int
    run: int = 0
    flipped: int = 0
    every: int = 1

    @property
    def places(self) -> list[int]:
        """The bytes, counted from `begin`."""
        return [octet + (octet // WORD) * WORD * (self.every - 1) for octet in range(self.octets)]

    def read(self, raw: "Tensor") -> "Tensor":
        """The bytes of a plane of `layout.Blocks`: uint8 [n, octets]."""
        octets = raw[:, self.begin : self.begin + self.places[-1] + 1]
        octets = octets[:, self.places] if self.every > 1 else octets
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
    scales: Plane | ScaleBytes | Half
    minimums: ScaleBytes | Half | None = None
    supers: Half | None = None
    minimum_supers: Half | None = None
    high: Plane | None = None
    signs: Plane | None = None

    def __call__(self, raw: "Tensor") -> BlockParts:
        """Take blocks apart: uint8 [n, bytes of a block]."""
        return BlockParts(*(None if one is None else one.read(raw) for one in self))  # type: ignore[arg-type]


def _halves(octets: "Tensor") -> "Tensor":
    import torch

    return octets.view(torch.float16)


def _plane(octets: "Tensor", bits: int, run: int) -> "Tensor":
    """Numbers of so many bits in the bytes of a plane; `run` bytes, whole words of 64 bits, hold the lowest bits of
    `run` numbers, then the next bits of as many.

    Eight bytes at a time take an eighth of the operations, and a run of a plane is moved in the largest numbers.
    """
    import torch

    from specchat.engine.formats.fields import joined_fields

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
