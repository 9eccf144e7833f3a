"""KV entries in the compiled pass: made of keys and values, multiplied by queries, and mixed.

A key or value of an int8 cache is a row of `model/kv_entries.py`: int8 values, then the float32 scales of their blocks.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    VECTOR,
    WORDS,
    Address,
    Count,
    at,
    broadcast,
    constant,
    each_vector,
    fma,
    inner,
    instruction,
    load,
    primitive,
    reduce_lanes,
    splat,
    store,
    wide_vectors,
)
from specchat.engine.cpu.products.tiles import INT8, add_products, load_widened, put_sums, zeros
from specchat.engine.memory.vectors import LANES, QUERIES
from specchat.engine.model.kv_entries import LARGEST, LEAST_PEAK

KEYS = 4
"""Keys multiplied at a time: their sums end in one vector."""
PANELS = 4 if wide_vectors() else 1
"""Vectors of a value whose sums for QUERIES queries fit in registers."""
FEW_PANELS = 4
"""Vectors of a value whose sums for one query fit in registers."""
BYTES = ir.VectorType(ir.IntType(8), LANES)


@primitive
def copy_entry(builder: Any, x: Address, out: Address, entry: Count) -> None:
    """out = x; `entry` bytes."""
    byte = ir.IntType(8).as_pointer()
    cgutils.raw_memcpy(builder, builder.inttoptr(out, byte), builder.inttoptr(x, byte), entry, 1)


@primitive
def put_int8(builder: Any, x: Address, size: Count, block: Count, out: Address) -> None:
    """out = x, float32 [size], as a row of an int8 cache (`kv_entries.stored`); `block` is a multiple of LANES."""
    peak = cgutils.alloca_once(builder, VECTOR)
    with cgutils.for_range(builder, builder.sdiv(size, block)) as loop:
        first = builder.add(x, builder.mul(builder.mul(loop.index, block), constant(4)))
        builder.store(splat(LEAST_PEAK), peak)

        def widen(offset: Any, first: Any = first) -> None:
            value = load(builder, first, offset)
            magnitude = instruction(builder, f"llvm.fabs.v{LANES}f32", VECTOR, [value])
            # What is no number counts as infinite, so that it leaves no numbers in its block.
            magnitude = builder.select(builder.fcmp_unordered("uno", value, value), splat(np.inf), magnitude)
            builder.store(_larger(builder, magnitude, builder.load(peak)), peak)

        each_vector(builder, block, widen)
        largest = reduce_lanes(builder, builder.load(peak), lambda a, b: _larger(builder, a, b))
        scale = builder.fdiv(largest, ir.Constant(F32, float(LARGEST)))
        store(builder, scale, builder.add(out, size), loop.index)
        scales, values = broadcast(builder, scale), builder.add(out, builder.mul(loop.index, block))

        def put(offset: Any, first: Any = first, scales: Any = scales, values: Any = values) -> None:
            scaled = builder.fdiv(load(builder, first, offset), scales)
            whole = builder.fptosi(instruction(builder, f"llvm.rint.v{LANES}f32", VECTOR, [scaled]), WORDS)
            builder.store(builder.trunc(whole, BYTES), at(builder, values, offset, BYTES, 1), align=1)

        each_vector(builder, block, put)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _vector(builder: Any, int8: int, row: Any, offset: Any, size: Any, block: Any) -> Any:
    """A vector of the key or value at address `row`, from its value `offset` on."""
    if not int8:
        return load(builder, row, offset)
    of_block = builder.lshr(offset, builder.cttz(block, ir.Constant(ir.IntType(1), 1)))
    scale = load(builder, builder.add(row, size), of_block, F32)
    return builder.fmul(load_widened(builder, INT8, row, offset, LANES), broadcast(builder, scale))


@primitive
def dots(
    builder: Any,
    int8: int,
    rows: int,
    queries: Address,
    keys: Address,
    size: Count,
    entry: Count,
    block: Count,
    count: Count,
    out: Address,
    row: Count,
) -> None:
    """out[r, i] = the sum of queries[r, j] keys[i, j] over `size` j, for `count` keys.

    `size` is a multiple of LANES, `count` one of KEYS. Keys are `entry` bytes apart, with scales of each `block` if
    `int8`. out is float32, its rows `row` elements apart; `int8` and `rows` are constants.
    """
    most = rows if wide_vectors() else 1
    with cgutils.for_range(builder, builder.sdiv(count, constant(KEYS))) as loop:
        first = builder.mul(loop.index, constant(KEYS))
        for begun in range(0, rows, most):
            sums = [[cgutils.alloca_once(builder, VECTOR) for _ in range(KEYS)] for _ in range(most)]
            for slot in (slot for slots in sums for slot in slots):
                builder.store(splat(0.0), slot)

            def add(at: Any, begun: int = begun, sums: Any = sums) -> None:
                found = [builder.add(keys, builder.mul(builder.add(first, constant(i)), entry)) for i in range(KEYS)]
                seen = [_vector(builder, int8, key, at, size, block) for key in found]
                for r, slots in enumerate(sums, begun):
                    query = load(builder, queries, builder.add(builder.mul(constant(r), size), at))
                    for slot, key in zip(slots, seen, strict=True):
                        builder.store(fma(builder, query, key, builder.load(slot)), slot)

            each_vector(builder, size, add)
            summed = _sums(builder, [builder.load(slot) for slots in sums for slot in slots])
            for r in range(most):
                offset = builder.add(builder.mul(constant(begun + r), row), first)
                lanes = ir.Constant(ir.VectorType(I32, KEYS), [KEYS * r + i for i in range(KEYS)])
                store(builder, builder.shuffle_vector(summed, summed, lanes), out, offset)


def _sums(builder: Any, vectors: list[Any]) -> Any:
    """Lane sums of 4 or 16 vectors, one a lane; the order of each sum does not depend on the other vectors."""

    def halved(a: Any, b: Any, run: int) -> Any:
        """Fold groups of 2 `run` lanes of a, then of b: add the two halves of each group."""
        lanes = [i for i in range(2 * LANES) if i // run % 2 == 0]
        halves = (ir.Constant(WORDS, lanes), ir.Constant(WORDS, [i + run for i in lanes]))
        return builder.fadd(*(builder.shuffle_vector(a, b, half) for half in halves))

    run = LANES
    while run := run // 2:
        pairs = zip(vectors[::2], vectors[1::2] or vectors, strict=True)
        vectors = [halved(a, b, run) for a, b in pairs]
    return vectors[0]


@inner
def mix_int8(a: Any, count: int, scores: int, row: int, values: int, most: int, outs: int) -> None:
    """outs[r, d] = the sum of scores[r, k] values[k, d] over `most` k of the int8 cache of an ATTENTION.

    `count` queries are 1 or QUERIES; scores and outs are float32, their rows `row` and the size of a head apart.
    """
    d, size, entry, block = 0, a.size, a.entry, a.block
    while d < size:
        out = outs + 4 * d
        if count == QUERIES and size - d >= PANELS * LANES:
            _mix(QUERIES, PANELS, scores, row, values, size, entry, block, most, d, out)
            d += PANELS * LANES
        elif count == 1 and size - d >= FEW_PANELS * LANES:
            _mix(1, FEW_PANELS, scores, row, values, size, entry, block, most, d, out)
            d += FEW_PANELS * LANES
        else:
            for j in range(count):
                _mix(1, 1, scores + 4 * j * row, row, values, size, entry, block, most, d, out + 4 * j * size)
            d += LANES


@primitive
def _mix(
    builder: Any,
    rows: int,
    panels: int,
    scores: Address,
    row: Count,
    values: Address,
    size: Count,
    entry: Count,
    block: Count,
    most: Count,
    first: Count,
    out: Address,
) -> None:
    """Mix `panels` vectors of the values from their number `first` on; `rows` and `panels` are constants."""
    sums = zeros(builder, rows, panels, LANES)
    offsets = [builder.add(first, constant(LANES * p)) for p in range(panels)]
    with cgutils.for_range(builder, most) as loop:
        value = builder.add(values, builder.mul(loop.index, entry))
        vectors = [_vector(builder, 1, value, offset, size, block) for offset in offsets]
        add_products(builder, sums, scores, row, loop.index, vectors)
    put_sums(builder, [[builder.load(slot) for slot in of_row] for of_row in sums], out, size)
