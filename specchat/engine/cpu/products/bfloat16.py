"""Inner loop of the products of bfloat16 rows with dense bfloat16 weights: two inputs of an output lie in a word.

A word's products are added to a float32 sum one after the other, that of the odd input first: each addition is rounded
once, to the nearest float32, and results below the smallest normal number are zeros. So `vdpbf16ps` computes (Intel's
manual, volume 2, VDPBF16PS), and the other ways give the same bits.
"""

from functools import cache
from platform import machine
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    I64,
    VECTOR,
    WORDS,
    Address,
    Count,
    broadcast,
    constant,
    each_vector,
    features,
    fma,
    instruction,
    load,
    masked,
    primitive,
    processor,
    shifted,
    store,
    wide_vectors,
    words,
)
from specchat.engine.cpu.products.tiles import FETCHING, fetch, put_sums, zeros
from specchat.engine.memory.vectors import LANES

INSTRUCTION, FLAGGED, PLAIN = "AVX-512 BF16", "float32", "float32 without flags"
"""Ways to add the products of a word."""
QUICK = "znver"
"""Processors that take no longer for `vdpbf16ps` than for two multiply-adds; Intel's take as long as for four."""
X86 = ("x86_64", "AMD64")
"""Machines with flags for small results."""
_ZEROS = 0x8040
"""Flags for results and operands below the smallest normal number."""
_BYTES = ir.IntType(8).as_pointer()
_SIGN, _EXPONENT, _NAN = -0x80000000, 0x7F800000, 0x7FC00000
"""Bits of a float32: its sign, those of its exponent, and a NaN."""
_HALVES = ir.VectorType(ir.IntType(16), LANES)


class _Bfloat16(ir.types._BaseFloatType):  # type: ignore[misc]
    """LLVM's type of this name."""

    intrinsic_name = "bf16"

    def __str__(self) -> str:
        return "bfloat"


_Bfloat16._create_instance()
_PAIRS = ir.VectorType(_Bfloat16(), 2 * LANES)


@cache
def way() -> str:
    """How this processor adds the products of a word: by an instruction, where that takes no longer than two others."""
    if "+avx512bf16" in features() and processor().startswith(QUICK):
        return INSTRUCTION
    return FLAGGED if machine() in X86 else PLAIN


@primitive
def begin_small(builder: Any) -> Count:
    """Have the processor make zeros of results below the smallest normal number; returns its flags before."""
    if way() != FLAGGED:
        return constant(0)
    before = builder.zext(_flags(builder), I64)
    _set_flags(builder, builder.or_(before, constant(_ZEROS)))
    return before


@primitive
def end_small(builder: Any, before: Count) -> None:
    """Set the flags that `begin_small` returned."""
    if way() == FLAGGED:
        _set_flags(builder, before)


@primitive
def narrow_rows(builder: Any, rows: Count, x: Address, x_row: Count, inputs: Count, out: Address) -> None:
    """out = rows float32 rounded to the nearest bfloat16, halves to the even one; inputs % 16 = 0.

    Results below the smallest normal number are zeros. They are bfloat16 [rows, inputs] for the instruction, else
    float32.
    """
    with cgutils.for_range(builder, rows) as row:

        def write(offset: Any) -> None:
            bits = load(builder, x, builder.add(builder.mul(x_row, row.index), offset), WORDS)
            last = masked(builder, shifted(builder, bits, 16), 1)
            rounded = builder.add(bits, builder.add(last, words(0x7FFF)))
            is_nan = builder.icmp_signed(">", masked(builder, bits, ~_SIGN), words(_EXPONENT))
            found = builder.select(is_nan, words(_NAN), _flushed(builder, masked(builder, rounded, -0x10000)))
            begin = builder.add(builder.mul(inputs, row.index), offset)
            if way() == INSTRUCTION:
                half = builder.trunc(shifted(builder, found, 16), _HALVES)
                address = builder.add(out, builder.mul(begin, constant(2)))
                builder.store(half, builder.inttoptr(address, half.type.as_pointer()), align=2)
            else:
                store(builder, builder.bitcast(found, VECTOR), out, begin)

        each_vector(builder, inputs, write)


@primitive
def pair_tile(
    builder: Any,
    rows: int,
    panels: int,
    x: Address,
    w: Address,
    pairs: Count,
    y: Address,
    y_row: Count,
) -> None:
    """y[r, 16 p ...] = the products of `rows` rows of `narrow_rows`, of `pairs` words, with `panels` panels.

    y is float32, its rows `y_row` elements apart; w are words [panels, pairs, LANES].
    """
    sums, panel = zeros(builder, rows, panels, LANES), builder.mul(pairs, constant(LANES))
    begins = [builder.mul(panel, constant(p)) for p in range(panels)]
    with cgutils.for_range(builder, pairs) as loop:
        at = builder.mul(loop.index, constant(LANES))
        offsets = [builder.add(begin, at) for begin in begins]
        weights = [load(builder, w, offset, WORDS) for offset in offsets]
        if rows <= FETCHING or not wide_vectors():
            further = builder.mul(panel, constant(panels))
            fetch(builder, w, [builder.add(offset, further) for offset in offsets], 4)
        halves = [_halves(builder, weight) for weight in weights]
        for r, row in enumerate(sums):
            pair = _inputs(builder, x, builder.add(builder.mul(pairs, constant(r)), loop.index))
            for slot, weight in zip(row, halves, strict=True):
                builder.store(_add(builder, builder.load(slot), weight, pair), slot)
    put_sums(builder, [[builder.load(slot) for slot in row] for row in sums], y, y_row)


@primitive
def read_pairs(builder: Any, packed: Address, row: Count, inputs: Count, out: Address) -> None:
    """out = output `row` of such weights, float32 [inputs]."""
    pairs = builder.sdiv(inputs, constant(2))
    panel = builder.mul(builder.sdiv(row, constant(LANES)), builder.mul(pairs, constant(LANES)))
    first = builder.add(panel, builder.srem(row, constant(LANES)))
    with cgutils.for_range(builder, pairs) as loop:
        word = load(builder, packed, builder.add(first, builder.mul(loop.index, constant(LANES))), I32)
        number = builder.mul(loop.index, constant(2))
        even, odd = builder.shl(word, ir.Constant(I32, 16)), builder.and_(word, ir.Constant(I32, -0x10000))
        for more, bits in enumerate((even, odd)):
            store(builder, builder.bitcast(bits, F32), out, builder.add(number, constant(more)))


def _halves(builder: Any, weights: Any) -> list[Any]:
    """Words of weights as the instruction takes them, else those of the odd inputs and of the even ones in float32."""
    if way() == INSTRUCTION:
        return [builder.bitcast(weights, _PAIRS)]
    return [
        builder.bitcast(one, VECTOR) for one in (masked(builder, weights, -0x10000), shifted(builder, weights, -16))
    ]


def _inputs(builder: Any, x: Any, word: Any) -> list[Any]:
    """The two inputs at a word, for all outputs, in the order of `_halves`."""
    if way() == INSTRUCTION:
        return [builder.bitcast(broadcast(builder, load(builder, x, word, I32)), _PAIRS)]
    even = builder.mul(word, constant(2))
    both = builder.add(even, constant(1)), even
    return [broadcast(builder, load(builder, x, one, F32)) for one in both]


def _add(builder: Any, before: Any, weights: list[Any], inputs: list[Any]) -> Any:
    """Add the products of words."""
    if way() == INSTRUCTION:
        return instruction(builder, f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}", VECTOR, [before, *inputs, *weights])
    for value, weight in zip(inputs, weights, strict=True):
        before = fma(builder, value, weight, before)
        if way() == PLAIN:
            before = builder.bitcast(_flushed(builder, builder.bitcast(before, WORDS)), VECTOR)
    return before


def _flags(builder: Any) -> Any:
    """The register of flags for vectors, int32."""
    room = cgutils.alloca_once(builder, I32)
    instruction(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), [builder.bitcast(room, _BYTES)])
    return builder.load(room)


def _set_flags(builder: Any, flags: Any) -> None:
    room = cgutils.alloca_once(builder, I32)
    builder.store(builder.trunc(flags, I32), room)
    instruction(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), [builder.bitcast(room, _BYTES)])


def _flushed(builder: Any, bits: Any) -> Any:
    """Bits of float32 numbers; of those below the smallest normal one the sign alone."""
    small = builder.icmp_signed("==", masked(builder, bits, _EXPONENT), words(0))
    return builder.select(small, masked(builder, bits, _SIGN), bits)
