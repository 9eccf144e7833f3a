"""Products with 4-bit weights on processors that look up 32 bytes at a time in tables of 16 (AVX2).

A call unpacks weights once for all its rows, NIBBLES inputs at a time, into registers. Sums lie in memory, in the
level-1 cache. Every sum adds its terms in the order of `tiles.four_bit_tile`.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    I64,
    VECTOR,
    Address,
    Count,
    broadcast,
    constant,
    each_vector,
    fma,
    instruction,
    load,
    map_vectors,
    primitive,
    splat,
    store,
)
from specchat.engine.cpu.products.tiles import NIBBLES, fetch, less_zeros, load_zeros
from specchat.engine.memory.vectors import LANES

TOGETHER = 4
"""Rows multiplied with unpacked weights at a time: their sums and the weights fill 16 registers."""
MANY = 32
"""Most rows of a call: their inputs and sums fill half of a small level-1 cache."""
HALF = LANES // 2
OCTETS, PAIRS = ir.VectorType(ir.IntType(8), 4 * HALF), ir.VectorType(ir.IntType(16), 2 * HALF)
TABLES = 64
"""Bytes of a code as float32; the byte tables of `packed.code_tables` follow."""


@primitive
def stack_room(builder: Any, vectors: int) -> Address:
    """Address of memory for `vectors` vectors, a constant, on the caller's stack."""
    return builder.ptrtoint(cgutils.alloca_once(builder, VECTOR, vectors), I64)


@primitive
def clear(builder: Any, out: Address, size: Count) -> None:
    """out = 0; float32 [size], a multiple of LANES."""
    map_vectors(builder, size, lambda: splat(0.0), out)


@primitive
def add_group(
    builder: Any,
    few: int,
    rows: Count,
    x: Address,
    x_row: Count,
    w: Address,
    further: Count,
    code: Address,
    sums: Address,
) -> None:
    """sums[r] += the sum over NIBBLES k of x[r, k] code[w[k]], for `rows` rows and LANES outputs.

    `few` is the number of rows if that is a constant, else 0. x is float32, its rows `x_row` elements apart. `sums` is
    float32 [rows, LANES], w int32 [LANES] as in `four_bit_tile`, `code` from `packed.code_tables`. The weights
    `further` bytes after w are prefetched.
    """
    fetch(builder, w, [further], 1)
    for lane in range(0, LANES, HALF):
        weights = _unpacked(builder, code, load(builder, w, constant(lane), ir.VectorType(I32, HALF)))

        def add(first: Any, count: int, lane: int = lane, weights: list[Any] = weights) -> None:
            at = [builder.add(first, constant(r)) for r in range(count)]
            places = [builder.add(builder.mul(r, constant(LANES)), constant(lane)) for r in at]
            totals = [load(builder, sums, place, ir.VectorType(F32, HALF)) for place in places]
            for k, weight in enumerate(weights):
                for i, r in enumerate(at):
                    value = load(builder, x, builder.add(builder.mul(x_row, r), constant(k)), F32, 4)
                    totals[i] = fma(builder, broadcast(builder, value, HALF), weight, totals[i])
            for place, total in zip(places, totals, strict=True):
                store(builder, total, sums, place)

        if few:
            add(constant(0), few)
            continue
        tiles = builder.sdiv(rows, constant(TOGETHER))
        with cgutils.for_range(builder, tiles) as loop:
            add(builder.mul(loop.index, constant(TOGETHER)), TOGETHER)
        done = builder.mul(tiles, constant(TOGETHER))
        with cgutils.for_range(builder, builder.sub(rows, done)) as loop:
            add(builder.add(done, loop.index), 1)


@primitive
def shift_sums(builder: Any, rows: Count, sums: Address, totals: Address, blocks: Count, zeros: Address) -> None:
    """sums[r] -= zeros * totals[r, 0]; zeros int8 [LANES], totals float32 [rows, blocks], sums [rows, LANES]."""
    own = load_zeros(builder, zeros, constant(0))
    with cgutils.for_range(builder, rows) as loop:
        place = builder.mul(loop.index, constant(LANES))
        total = load(builder, totals, builder.mul(blocks, loop.index), F32)
        store(builder, less_zeros(builder, load(builder, sums, place), own, total), sums, place)


@primitive
def end_block(builder: Any, rows: Count, sums: Address, scales: Address, further: Count, out: Address) -> None:
    """out[r] += sums[r] * scales, then sums = 0; scales float32 [LANES], the others [rows, LANES].

    The scales `further` bytes later are prefetched.
    """
    fetch(builder, scales, [further], 1)
    factors = load(builder, scales, constant(0))

    def one(at: Any) -> None:
        store(builder, fma(builder, load(builder, sums, at), factors, load(builder, out, at)), out, at)
        store(builder, splat(0.0), sums, at)

    each_vector(builder, builder.mul(rows, constant(LANES)), one)


def _unpacked(builder: Any, code: Any, packed: Any) -> list[Any]:
    """Unpack HALF int32 into NIBBLES vectors of HALF weights: look up the four bytes of each weight, then join them."""
    # Put bytes of four outputs side by side, in the order of the joined weights.
    turned = [16 * (i // 16) + 4 * (i % 4) + i % 16 // 4 for i in range(4 * HALF)]
    packed = _shuffled(builder, [builder.bitcast(packed, OCTETS)] * 2, turned)
    tables = [load(builder, code, constant(TABLES + 4 * HALF * byte), OCTETS, 1) for byte in range(4)]
    found = []
    for shift in (0, 4):
        shift_to = builder.lshr(packed, ir.Constant(OCTETS, [shift] * 4 * HALF)) if shift else packed
        index = builder.and_(shift_to, ir.Constant(OCTETS, [15] * 4 * HALF))
        octets = [instruction(builder, "llvm.x86.avx2.pshuf.b", OCTETS, [table, index]) for table in tables]
        lower, upper = (_joined(builder, octets[i : i + 2], PAIRS) for i in (0, 2))
        found.append([one for pair in zip(lower, upper, strict=True) for one in _joined(builder, pair, packed.type)])
    floats = ir.VectorType(F32, HALF)
    return [builder.bitcast(found[nibble % 2][nibble // 2], floats) for nibble in range(NIBBLES)]


def _joined(builder: Any, parts: Any, kind: Any) -> list[Any]:
    """Interleave two vectors into two of `kind`, whose elements are twice as wide, within each half of a register."""
    count = parts[0].type.count
    made = []
    for upper in (0, 1):
        places = [half + count // 4 * upper + i for half in (0, count // 2) for i in range(count // 4)]
        turns = [count * which + place for place in places for which in (0, 1)]
        made.append(builder.bitcast(_shuffled(builder, parts, turns), kind))
    return made


def _shuffled(builder: Any, parts: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(*parts, ir.Constant(ir.VectorType(I32, len(places)), places))
