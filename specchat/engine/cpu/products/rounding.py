"""Rows of float32 as bytes: blocks of whole numbers from -127 to 127, each with a scale and the sum of its numbers."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    VECTOR,
    WORDS,
    Address,
    Count,
    broadcast,
    constant,
    each_vector,
    instruction,
    load,
    primitive,
    reduce_lanes,
    splat,
    words,
)
from specchat.engine.cpu.products.byte_reader import byte_order
from specchat.engine.formats.format import LARGEST, LEAST_PEAK
from specchat.engine.memory.vectors import LANES

_MAGNITUDE, _INFINITE = 0x7FFFFFFF, 0x7F800000
"""Bits of a float32 without its sign, and those of infinity, which only NaN exceeds."""
_BYTES = ir.VectorType(ir.IntType(8), LANES)


@primitive
def round_rows(
    builder: Any,
    form: int,
    rows: Count,
    x: Address,
    x_row: Count,
    inputs: Count,
    block: Count,
    part: Count,
    codes: Address,
    scales: Address,
    totals: Address,
) -> None:
    """Round `rows` rows of `inputs` float32, a multiple of LANES, in blocks of `block`: see `int8_rows.quantised_rows`.

    `codes` get int8 [rows, inputs] in the order of `byte_reader.byte_order`; `scales` float32 [rows,
    inputs / block]; `totals` int32 [rows, inputs / part], the sums of the codes of parts of a block.
    """
    blocks, parts = builder.sdiv(inputs, block), builder.sdiv(inputs, part)
    of_block = builder.sdiv(block, part)
    order = byte_order(form)
    order = [first + number for first in range(0, LANES, len(order)) for number in order]
    at_once = len(order) == LANES
    total = cgutils.alloca_once(builder, WORDS)
    with cgutils.for_range(builder, rows) as row, cgutils.for_range(builder, blocks) as one:
        first = builder.add(builder.mul(x_row, row.index), builder.mul(block, one.index))
        scale, inverse, usable = _scale(builder, _largest(builder, x, first, block))
        factor = broadcast(builder, inverse)
        _store(builder, scale, scales, builder.add(builder.mul(blocks, row.index), one.index), 4)
        with cgutils.for_range(builder, of_block) as loop:
            number = builder.add(builder.mul(of_block, one.index), loop.index)
            before = builder.mul(part, number)
            source = builder.add(builder.mul(x_row, row.index), before)
            out = builder.add(builder.mul(inputs, row.index), before)
            builder.store(words(0), total)

            def write(
                place: Any, source: Any = source, out: Any = out, factor: Any = factor, usable: Any = usable
            ) -> None:
                value = builder.fmul(load(builder, x, builder.add(source, place)), factor)
                value = builder.select(usable, value, splat(0.0))
                whole = builder.fptosi(instruction(builder, f"llvm.roundeven.v{LANES}f32", VECTOR, [value]), WORDS)
                builder.store(builder.add(builder.load(total), whole), total)
                found = builder.trunc(whole, _BYTES)
                found = builder.shuffle_vector(found, found, _constant(order)) if at_once else found
                _store(builder, found, codes, builder.add(out, place), 1)

            each_vector(builder, part, write)
            if not at_once:
                kind = ir.VectorType(ir.IntType(8), len(order))
                with cgutils.for_range(builder, builder.sdiv(part, constant(len(order)))) as several:
                    begin = builder.add(out, builder.mul(several.index, constant(len(order))))
                    found = load(builder, codes, begin, kind, 1)
                    _store(builder, builder.shuffle_vector(found, found, _constant(order)), codes, begin, 1)
            summed = reduce_lanes(builder, builder.load(total), builder.add)
            _store(builder, summed, totals, builder.add(builder.mul(parts, row.index), number), 4)


def _largest(builder: Any, x: Any, first: Any, block: Any) -> Any:
    """Bits of the largest magnitude of a block; NaN is larger than infinity."""
    largest = cgutils.alloca_once(builder, WORDS)
    builder.store(words(0), largest)

    def compare(place: Any) -> None:
        bits = builder.and_(load(builder, x, builder.add(first, place), WORDS), words(_MAGNITUDE))
        builder.store(_larger(builder, builder.load(largest), bits), largest)

    each_vector(builder, block, compare)
    return reduce_lanes(builder, builder.load(largest), lambda a, b: _larger(builder, a, b))


def _scale(builder: Any, bits: Any) -> tuple[Any, Any, Any]:
    """The scale of a block by the bits of its largest magnitude, its inverse, and whether numbers are read at all."""
    largest = builder.bitcast(bits, F32)
    finite = builder.icmp_signed("<", bits, ir.Constant(I32, _INFINITE))
    large = builder.fcmp_ordered(">=", largest, ir.Constant(F32, LEAST_PEAK))
    usable = builder.and_(finite, large)
    most = ir.Constant(F32, float(LARGEST))
    small = builder.select(finite, ir.Constant(F32, 0.0), ir.Constant(F32, float("nan")))
    scale = builder.select(usable, builder.fdiv(largest, most), small)
    return scale, builder.fdiv(most, builder.select(usable, largest, most)), usable


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def _constant(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(values)), values)


def _store(builder: Any, value: Any, address: Any, offset: Any, width: int) -> None:
    pointer = builder.inttoptr(builder.add(address, builder.mul(offset, constant(width))), value.type.as_pointer())
    builder.store(value, pointer, align=width)
