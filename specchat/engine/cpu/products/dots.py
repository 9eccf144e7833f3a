"""Sums of products of bytes by what a processor has for them: all ways give the same whole numbers.

A quad is four bytes of each lane, the weights of four inputs of an output; it is multiplied by the four bytes of these
inputs.
"""

from functools import cache
from typing import Any, ClassVar

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    I32,
    I64,
    WORDS,
    broadcast,
    constant,
    features,
    instruction,
    load,
    masked,
    shifted,
    words,
)
from specchat.engine.memory.vectors import LANES

BYTE = ir.IntType(8)
Pieces = list[Any]
"""LANES lanes in as many vectors as a processor's registers need."""


class Dots:
    """Products of quads, lane by lane in plain arithmetic.

    Sums of a span of quads are kept in a form of their own, of which `summed` makes int32.

    Attributes:
        lanes: of a vector.
        less: what is taken from every signed weight before it is multiplied, so that sums lack it times the inputs.
    """

    lanes: ClassVar[int] = LANES
    less: ClassVar[int] = 0

    def __init__(self, builder: Any, signed: bool) -> None:
        self._builder, self._signed = builder, signed
        self._words = ir.VectorType(I32, self.lanes)

    def weights(self, quads: Any, negative: Any) -> Pieces:
        """A quad of weights, int32 [LANES], in the form that `add` takes.

        Bytes that are `negative`, int1 [4 LANES], change their signs; where it is not None `less` is taken from them.
        """
        return self._pieces(signed(self._builder, quads, negative))

    def inputs(self, codes: Any, place: Any) -> Any:
        """Four bytes of a row, from `place` on, for all lanes."""
        return broadcast(self._builder, load(self._builder, codes, place, I32, 1), self.lanes)

    def slots(self) -> list[Any]:
        """Slots of new sums, of zeros."""
        kind = self._sums()
        found = [cgutils.alloca_once(self._builder, kind) for _ in range(LANES // self.lanes)]
        for slot in found:
            self._builder.store(ir.Constant(kind, [0] * kind.count), slot)
        return found

    def add(self, slots: list[Any], weights: Pieces, inputs: Any) -> None:
        """Add the products of a quad."""
        for slot, piece in zip(slots, weights, strict=True):
            self._builder.store(self._add(self._builder.load(slot), piece, inputs), slot)

    def scales(self, numbers: Any) -> Pieces:
        """Whole scales of outputs, int32 [LANES] of 16 bits, in the form that `summed` takes."""
        return self._pieces(numbers)

    def summed(self, slots: list[Any], scales: Pieces | None) -> Any:
        """The sums so far, int32 [LANES], times `scales` if any; the slots are zeros again."""
        pieces = scales or [None] * len(slots)
        found = join(
            self._builder,
            [self._summed(self._builder.load(slot), scale) for slot, scale in zip(slots, pieces, strict=True)],
        )
        for slot in slots:
            self._builder.store(ir.Constant(slot.type.pointee, [0] * slot.type.pointee.count), slot)
        return found

    @classmethod
    def depth(cls, most: int) -> int:
        """Quads of a span, for weights of magnitudes up to `most`."""
        return 1 << 20

    def _sums(self) -> Any:
        """Form of the sums of a slot."""
        return self._words

    def _add(self, before: Any, weights: Any, inputs: Any) -> Any:
        builder = self._builder
        for byte in range(4):
            product = builder.mul(self._byte(weights, byte, self._signed), self._byte(inputs, byte, True))
            before = builder.add(before, product)
        return before

    def _byte(self, numbers: Any, byte: int, signed: bool) -> Any:
        builder, many = self._builder, numbers.type.count
        raised = builder.shl(numbers, ir.Constant(numbers.type, [24 - 8 * byte] * many))
        return (builder.ashr if signed else builder.lshr)(raised, ir.Constant(numbers.type, [24] * many))

    def _summed(self, piece: Any, scale: Any) -> Any:
        return piece if scale is None else self._builder.mul(piece, scale)

    def _pieces(self, numbers: Any) -> Pieces:
        if self.lanes == LANES:
            return [numbers]
        kind = ir.VectorType(I32, self.lanes)
        return [
            self._builder.shuffle_vector(numbers, numbers, ir.Constant(kind, [*range(first, first + self.lanes)]))
            for first in range(0, LANES, self.lanes)
        ]


class _Vnni(Dots):
    """`vpdpbusd`, of unsigned weights."""

    less = -128

    def weights(self, quads: Any, negative: Any) -> Pieces:
        if self._signed and negative is None:
            quads = self._builder.xor(quads, words(-0x7F7F7F80))
        # 128 + x with the other sign is 128 - x, modulo 256.
        return super().weights(quads, negative)

    def _add(self, before: Any, weights: Any, inputs: Any) -> Any:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        return instruction(self._builder, name, self._words, [before, weights, inputs])


class _HalfVnni(_Vnni):
    """The same in 256 bits."""

    lanes = 8


class _Bytewise(Dots):
    """Instructions that take vectors of bytes."""

    def weights(self, quads: Any, negative: Any) -> Pieces:
        return [self._bytes(piece) for piece in super().weights(quads, negative)]

    def inputs(self, codes: Any, place: Any) -> Any:
        return self._bytes(super().inputs(codes, place))

    def _bytes(self, numbers: Any) -> Any:
        return self._builder.bitcast(numbers, ir.VectorType(BYTE, 4 * self.lanes))


class _Avx2(_Bytewise):
    """`vpmaddubsw`, whose sums of two products have 16 bits; signs of weights go to the inputs."""

    lanes = 8

    @classmethod
    def depth(cls, most: int) -> int:
        return 32767 // (2 * 127 * most)

    def weights(self, quads: Any, negative: Any) -> Pieces:
        if negative is None:
            return super().weights(quads, None)
        builder = self._builder
        signs = builder.sext(negative, ir.VectorType(BYTE, negative.type.count))
        signs = builder.or_(signs, ir.Constant(signs.type, [1] * negative.type.count))
        both = super().weights(quads, None), super().weights(builder.bitcast(signs, WORDS), None)
        return [*zip(*both, strict=True)]

    def _add(self, before: Any, weights: Any, inputs: Any) -> Any:
        builder, kind = self._builder, inputs.type
        if isinstance(weights, tuple):
            weights, signs = weights
            inputs = instruction(builder, "llvm.x86.avx2.psign.b", kind, [inputs, signs])
        elif self._signed:
            inputs = instruction(builder, "llvm.x86.avx2.psign.b", kind, [inputs, weights])
            weights = instruction(builder, "llvm.abs.v32i8", kind, [weights, ir.Constant(ir.IntType(1), 0)])
        found = instruction(builder, "llvm.x86.avx2.pmadd.ub.sw", self._sums(), [weights, inputs])
        return builder.add(before, found)

    def _sums(self) -> Any:
        return ir.VectorType(ir.IntType(16), 2 * self.lanes)

    def scales(self, numbers: Any) -> Pieces:
        builder = self._builder
        low = masked(builder, numbers, 0xFFFF)
        both = builder.or_(low, shifted(builder, numbers, -16))
        return [builder.bitcast(piece, self._sums()) for piece in self._pieces(both)]

    def _summed(self, piece: Any, scale: Any) -> Any:
        scale = ir.Constant(piece.type, [1] * piece.type.count) if scale is None else scale
        return instruction(self._builder, "llvm.x86.avx2.pmadd.wd", self._words, [piece, scale])


class _Arm(_Bytewise):
    """`sdot`, of signed bytes; unsigned weights have at most seven bits."""

    lanes = 4

    def _add(self, before: Any, weights: Any, inputs: Any) -> Any:
        return instruction(self._builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", self._words, [before, weights, inputs])


WAYS: dict[str, type[Dots]] = {
    "AVX-512 VNNI": _Vnni,
    "AVX-VNNI": _HalfVnni,
    "AVX2": _Avx2,
    "ARM dot product": _Arm,
    "plain": Dots,
}
"""The ways to multiply bytes, the quickest first."""
_NEEDED = {
    "AVX-512 VNNI": ("+avx512vnni",),
    "AVX-VNNI": ("+avxvnni",),
    "AVX2": ("+avx2",),
    "ARM dot product": ("+dotprod",),
    "plain": (),
}


@cache
def way() -> str:
    """The way that this processor multiplies bytes, a key of `WAYS`."""
    found = features().split(",")
    return next(name for name, needed in _NEEDED.items() if set(needed) <= set(found))


def signed(builder: Any, quads: Any, negative: Any) -> Any:
    """Turn the signs of bytes of int32 [LANES] where `negative`, int1 [4 LANES], is set; None: nowhere."""
    if negative is None:
        return quads
    octets = builder.bitcast(quads, ir.VectorType(BYTE, negative.type.count))
    return builder.bitcast(builder.select(negative, builder.neg(octets), octets), WORDS)


def look_up_bytes(builder: Any, table: Any, quads: Any) -> Any:
    """Look up every byte of a word, 0 to 15, in a table of 16 bytes."""
    kind, chosen = ir.VectorType(BYTE, 16), way()
    values = load(builder, table, constant(0), kind, 1)
    width, name = {
        "AVX-512 VNNI": (64, "llvm.x86.avx512.pshuf.b.512"),
        "AVX-VNNI": (32, "llvm.x86.avx2.pshuf.b"),
        "AVX2": (32, "llvm.x86.avx2.pshuf.b"),
        "ARM dot product": (16, "llvm.aarch64.neon.tbl1.v16i8"),
        "plain": (4, ""),
    }[chosen]
    octets = builder.bitcast(quads, ir.VectorType(BYTE, 4 * LANES))
    if not name:
        found = ir.Constant(octets.type, ir.Undefined)
        for lane in range(4 * LANES):
            place = ir.Constant(I32, lane)
            index = builder.zext(builder.extract_element(octets, place), I64)
            found = builder.insert_element(found, load(builder, table, index, BYTE, 1), place)
        return builder.bitcast(found, WORDS)
    whole = builder.shuffle_vector(values, values, ir.Constant(ir.VectorType(I32, width), [*range(16)] * (width // 16)))
    pieces = []
    for first in range(0, 4 * LANES, width):
        lanes = ir.Constant(ir.VectorType(I32, width), [*range(first, first + width)])
        pieces.append(instruction(builder, name, whole.type, [whole, builder.shuffle_vector(octets, octets, lanes)]))
    return builder.bitcast(join(builder, pieces), WORDS)


def join(builder: Any, pieces: Pieces) -> Any:
    """Vectors one after another as one."""
    while len(pieces) > 1:
        numbers = ir.Constant(ir.VectorType(I32, 2 * pieces[0].type.count), [*range(2 * pieces[0].type.count)])
        pieces = [
            builder.shuffle_vector(one, other, numbers) for one, other in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    return pieces[0]
