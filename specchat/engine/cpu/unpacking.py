"""Blocks of a GGUF file laid out for products in one compiled pass over its bytes, compiled for each type of a file.

A panel has LANES rows of the file. Some blocks of each are taken apart into planes and scales in the level-1 cache, and
these are transposed, so that numbers of LANES outputs lie side by side.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import cfunc, types
from numba.core import cgutils
from numpy.typing import NDArray

from specchat.engine.cpu import compiled
from specchat.engine.cpu.primitives.atomics import word
from specchat.engine.cpu.primitives.simd import I32, I64, Address, Count, at, constant, load, primitive
from specchat.engine.cpu.products.block_form import LINE, BlockForm
from specchat.engine.cpu.products.codebooks import QUAD
from specchat.engine.cpu.products.tiles import fetch
from specchat.engine.cpu.products.unpacked import stack_room
from specchat.engine.formats.block_fields import Half, Plane, ScaleBytes
from specchat.engine.formats.gguf import FIELDS, MXFP4, SIZES
from specchat.engine.formats.grids import GRIDS, GROUP, SUPER_BLOCK
from specchat.engine.formats.layout import Unread
from specchat.engine.hardware.threads import CORES
from specchat.engine.memory.vectors import LANES

KINDS = tuple(FIELDS)
"""Types by the numbers that compiled code has for them."""
SHARED = 1 << 20
"""Bytes of a matrix from which several threads share it."""
VECTOR_BYTES = 16
"""Bytes that are transposed at a time, of each row."""
JOINED_BYTES = 32
"""Bytes of a plane whose numbers are joined at a time."""
NAMES = ("address", "high", "scales", "signs", "shifts", "supers", "shift_supers")
"""Fields of a PRODUCT in the order of `_parts`."""
EXPONENTS = {2: 0x7C00, 1: 0xFF}
"""The bits of an exponent that infinity and NaN have, in a float16 and in an exponent of a byte."""


def unpack(kind: str, rounded: bool, rows: NDArray[np.int64], blocks: int, found: dict[str, NDArray[Any]]) -> None:
    """Lay rows of so many blocks out for products: their fields, by their names in a PRODUCT.

    Args:
        rounded: True for products of rows of bytes.
        rows: the address of each, int64 [panels * LANES]; 0 for none, which leaves zeros.
        found: where to, zeros [panels, numbers of a row, LANES] each.

    Raises:
        Unread: a scale is no number.
    """
    code, panels = _code(kind, rounded), len(rows) // LANES
    addresses = np.concatenate([rows, rows[-LANES:]])  # a panel more to prefetch
    into = np.array([found[name].ctypes.data for name in NAMES if name in found], np.int64)

    def part(first: int, last: int) -> int:
        found: int = code.ctypes(addresses.ctypes.data, blocks, into.ctypes.data, first, last)
        return found

    count = CORES if panels * LANES * blocks * SIZES[kind][1] >= SHARED else 1
    ends = [panels * number // count for number in range(count + 1)]
    if count == 1:
        wrong = part(0, panels)
    else:
        with ThreadPoolExecutor(count) as threads:
            wrong = max(threads.map(part, ends[:-1], ends[1:]))
    if wrong:
        raise Unread


@cache
def _code(kind: str, rounded: bool) -> Any:
    """Compiled code for a type: lays out panels `first` to `last`; returns other than 0 where a scale is no number.

    Arguments: addresses of rows, blocks of a row, addresses of the fields, first, last.
    """
    try:
        return _compile(kind, rounded)
    except Exception:  # any error of damaged cache files or a full disk
        compiled.discard_cache("what was compiled before cannot be used")
        return _compile(kind, rounded)


def _compile(kind: str, rounded: bool) -> Any:
    number, (size, octets), quads = KINDS.index(kind), SIZES[kind], int(rounded)
    most, (_, room_row) = SUPER_BLOCK // size, _parts(number, quads)
    vectors = room_row * LANES // LINE

    def columns(rows: int, blocks: int, into: int, first: int, last: int) -> int:
        room, wrong = stack_room(vectors), 0
        for p in range(first, last):
            for k in range(0, blocks, most):
                count = min(most, blocks - k)
                for lane in range(LANES):
                    row, ahead = word(rows, p * LANES + lane), word(rows, (p + 1) * LANES + lane)
                    for i in range(count):
                        take_apart(number, quads, row, ahead, (k + i) * octets, room + lane * room_row, i)
                wrong |= lay_out(number, quads, room, into, p * blocks + k, count)
        return wrong

    columns.__qualname__ = f"unpack_{kind}_{quads}"
    return cfunc(types.int64(*[types.int64] * 5), cache=compiled.caches_code())(columns)


class Part(NamedTuple):
    """A field of a block: `numbers` of `width` bytes each, from byte `room` on of a row that is taken apart."""

    field: Plane | ScaleBytes | Half
    numbers: int
    width: int
    room: int


def _parts(number: int, quads: int) -> tuple[list[Part], int]:
    """The fields of a type, as `stored_blocks.block_parts` numbers them, and the bytes of a row that is taken apart.

    `quads` is 1 for products of rows of bytes, where four bytes of a row make a number.
    """
    kind = KINDS[number]
    fields, (size, _) = FIELDS[kind], SIZES[kind]
    found, room = list[Part](), 0
    of_blocks, of_supers = (fields.scales, fields.signs, fields.minimums), (fields.supers, fields.minimum_supers)
    for field in (fields.low, fields.high, *of_blocks, *of_supers):
        if field is None:
            continue
        if isinstance(field, Plane) and kind in GRIDS:
            widths = dict(zip((fields.low, fields.signs, fields.scales), GRIDS[kind].widths(quads > 0), strict=True))
            width = widths.get(field, 1)
            numbers = field.octets // width
        elif isinstance(field, Plane):
            whole = (size // QUAD, QUAD) if quads else (size, 1)
            numbers, width = whole if field.bits == GROUP else (size // GROUP, field.bits)
        else:
            numbers, width = (1, 2) if isinstance(field, Half) else (field.width * len(field.words), 1)
        found.append(Part(field, numbers, width, room))
        room += -(-numbers * width * (SUPER_BLOCK // size) // VECTOR_BYTES) * VECTOR_BYTES
    return found, room


@primitive
def take_apart(
    builder: Any, number: int, quads: int, row: Address, ahead: Address, octet: Count, room: Address, block: Count
) -> None:
    """Take the block at byte `octet` of a row apart, as a block of `room`, and prefetch that of the row `ahead`.

    Without a row, at 0, `room` is zeros.
    """
    (parts, size), kind = _parts(number, quads), KINDS[number]
    of = FIELDS[kind]
    with builder.if_else(builder.icmp_signed("!=", row, constant(0))) as (present, missing):
        with present:
            source = builder.add(row, octet)
            lines = range(0, SIZES[kind][1], LINE)
            fetch(builder, ahead, [builder.add(octet, constant(line)) for line in lines], 1)
            for field, count, width, first in parts:
                place = builder.add(room, builder.add(constant(first), builder.mul(block, constant(count * width))))
                if isinstance(field, Plane):
                    ordered = not quads and field is of.high and kind not in GRIDS
                    low = of.low.bits if ordered else 0
                    _put_plane(builder, field, source, place, low)
                elif isinstance(field, ScaleBytes):
                    _put_scales(builder, field, source, place)
                else:
                    half = _read(builder, source, field.begin, ir.IntType(16))
                    _put(builder, builder.xor(half, ir.Constant(half.type, field.negated << 15)), place, 0)
        with missing:
            cgutils.memset(builder, at(builder, room, constant(0), ir.IntType(8), 1), constant(size), 0)


def _put_plane(builder: Any, plane: Plane, source: Any, place: Any, low: int) -> None:
    """Put a plane of a block; a word of the high one has its numbers in the order of `BlockForm.field`.

    `low` are the bits of the low plane, 0 for itself and where numbers keep their order.
    """
    bits, run = plane.bits, plane.run

    def put(numbers: Any, begin: int) -> None:
        if low:
            order = sorted(range(GROUP), key=BlockForm(low, bits).field)
            index = [n - n % GROUP + order[n % GROUP] for n in range(numbers.type.count)]
            numbers = builder.shuffle_vector(numbers, numbers, _indices(index))
        _put(builder, _joined(builder, numbers, bits), place, begin)

    if not run:
        octets = _read(builder, source, plane.begin, _octets(plane.places[-1] + 1))
        if plane.every > 1:
            octets = builder.shuffle_vector(octets, octets, _indices(plane.places))
        if low:
            put(_bits(builder, octets), 0)
        else:
            _put(builder, octets, place, 0)
        return
    size = min(run, JOINED_BYTES)
    # Numbers of several places in a byte are joined together, if they come to less than a vector.
    most = max(1, VECTOR_BYTES * GROUP // (size * bits)) if size == run else 1
    for first in range(0, plane.octets, size):
        octets = _read(builder, source, plane.begin + first, _octets(size))
        for shift in range(0, GROUP, bits * most):
            parts = [_masked(builder, octets, shift + bits * number, bits) for number in range(most)]
            put(_concatenated(builder, parts), first - first % run + (shift * run + first % run * bits) // GROUP)


def _bits(builder: Any, octets: Any) -> Any:
    """Bytes of the bits of each byte."""
    kind = _octets(GROUP * octets.type.count)
    each = builder.shuffle_vector(octets, octets, _indices([n // GROUP for n in range(kind.count)]))
    bit = builder.and_(each, ir.Constant(kind, [1 << n % GROUP for n in range(kind.count)]))
    return builder.zext(builder.icmp_unsigned("!=", bit, _all(kind, 0)), kind)


def _joined(builder: Any, numbers: Any, bits: int) -> Any:
    """Bytes of numbers of so many bits, of which each byte has one."""
    while bits < GROUP:
        pairs = builder.bitcast(numbers, ir.VectorType(ir.IntType(16), numbers.type.count // 2))
        pairs = builder.or_(pairs, builder.lshr(pairs, _all(pairs.type, GROUP - bits)))
        numbers, bits = builder.trunc(pairs, _octets(pairs.type.count)), 2 * bits
    return numbers


def _put_scales(builder: Any, scales: ScaleBytes, source: Any, place: Any) -> None:
    for number, parts in enumerate(scales.words):
        kind = _octets(scales.width)
        found = _all(kind, 0)
        for part in parts:
            octets = _masked(builder, _read(builder, source, part.begin, kind), part.right, part.bits)
            found = builder.or_(found, builder.shl(octets, _all(kind, part.left)))
        _put(builder, builder.sub(found, _all(kind, scales.offset)), place, number * scales.width)


@primitive
def lay_out(builder: Any, number: int, quads: int, room: Address, into: Address, first: Count, blocks: Count) -> Count:
    """Transpose blocks of LANES rows in `room` to block `first` and those after it of the fields `into`.

    Returns other than 0 where a scale of any call is no number.
    """
    parts, row = _parts(number, quads)
    wrong = cgutils.alloca_once(builder, ir.VectorType(ir.IntType(16), LANES))
    for index, (field, count, width, begin) in enumerate(parts):
        numbers, each = builder.mul(blocks, constant(count)), VECTOR_BYTES // width
        out = builder.mul(first, constant(count * width * LANES))
        out = builder.add(load(builder, into, constant(index), I64, 8), out)
        source, vectors = builder.add(room, constant(begin)), builder.udiv(numbers, constant(each))

        def after(address: Any, octets: int, loop: Any) -> Any:
            return builder.add(address, builder.mul(loop.index, constant(octets)))

        with cgutils.for_range(builder, vectors) as loop:
            _transpose(builder, after(source, VECTOR_BYTES, loop), row, after(out, VECTOR_BYTES * LANES, loop), width)
        with cgutils.for_range(builder, numbers, start=builder.mul(vectors, constant(each))) as loop:
            of_source, of_out = after(source, width, loop), after(out, width * LANES, loop)
            for lane in range(LANES):
                _put(builder, _read(builder, of_source, lane * row, ir.IntType(8 * width)), of_out, lane * width)
        if isinstance(field, Half) or (KINDS[number] == MXFP4 and isinstance(field, ScaleBytes)):
            kind = ir.VectorType(ir.IntType(8 * width), LANES)
            exponent = _all(kind, EXPONENTS[width])
            with cgutils.for_range(builder, numbers) as loop:
                found = builder.and_(_read(builder, after(out, width * LANES, loop), 0, kind), exponent)
                found = builder.zext(builder.icmp_unsigned("==", found, exponent), wrong.type.pointee)
                builder.store(builder.or_(builder.load(wrong), found), wrong)
    bits = builder.bitcast(builder.load(wrong), ir.IntType(16 * LANES))
    return builder.zext(builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), I64)


def _transpose(builder: Any, source: Any, row: int, out: Any, width: int) -> None:
    """Put numbers of `width` bytes, a vector of each of LANES rows, side by side by rows."""
    count = VECTOR_BYTES // width
    halves = [[n // 2 + count * (n % 2) + half for n in range(count)] for half in (0, count // 2)]
    for first in range(0, LANES, count):
        kind = ir.VectorType(ir.IntType(8 * width), count)
        vectors = [_read(builder, source, (first + lane) * row, kind) for lane in range(count)]
        for _ in range(count.bit_length() - 1):
            pairs = zip(vectors, vectors[count // 2 :], strict=False)
            vectors = [builder.shuffle_vector(*pair, _indices(half)) for pair in pairs for half in halves]
        for number, vector in enumerate(vectors):
            _put(builder, vector, out, (number * LANES + first) * width)


def _octets(count: int) -> Any:
    return ir.VectorType(ir.IntType(8), count)


def _all(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count)


def _indices(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(values)), values)


def _read(builder: Any, address: Any, octet: int, kind: Any) -> Any:
    return load(builder, address, constant(octet), kind, 1)


def _put(builder: Any, value: Any, address: Any, octet: int) -> None:
    builder.store(value, at(builder, address, constant(octet), value.type, 1), align=1)


def _masked(builder: Any, octets: Any, right: int, bits: int) -> Any:
    """Some bits of each byte, from bit `right` on."""
    return builder.and_(builder.lshr(octets, _all(octets.type, right)), _all(octets.type, (1 << bits) - 1))


def _concatenated(builder: Any, vectors: list[Any]) -> Any:
    """One vector of several, a power of two of them."""
    while len(vectors) > 1:
        index = _indices([*range(2 * vectors[0].type.count)])
        vectors = [builder.shuffle_vector(*pair, index) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]
