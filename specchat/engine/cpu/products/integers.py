"""Inner loop of the products of rows of bytes with weights in blocks: exact sums of whole numbers, then scales."""

from typing import Any, NamedTuple

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
    fma,
    load,
    masked,
    primitive,
    shifted,
    splat,
    store,
    words,
)
from specchat.engine.cpu.products.blocks import GROUP, ZEROS, BlockReader
from specchat.engine.cpu.products.dots import WAYS, Dots, look_up_bytes, way
from specchat.engine.cpu.products.tiles import fetch_group
from specchat.engine.formats.format import SUPER_BLOCK
from specchat.engine.memory.vectors import LANES

QUAD = 4
"""Inputs whose products are added first."""


class ByteReader(BlockReader):
    """Code that reads the weights of a product as quads: four whole numbers of each output in a word.

    Of fewer than 8 bits, the first quad of a group has the even inputs. Codes are looked up in a table of bytes.
    """

    @property
    def signed(self) -> bool:
        """True where bytes have signs."""
        return self._form.coded or self._form.low == GROUP

    @property
    def most(self) -> int:
        """Largest magnitude of a byte."""
        if self._form.low == GROUP:
            return 128
        return self._form.most if self._form.coded else (1 << self._form.low + self._form.high) - 1

    @property
    def unit(self) -> int:
        return self._form.finer

    @property
    def offset(self) -> int:
        """The number that is taken away from every one."""
        return self._form.offset

    def together(self, depth: int) -> Any:
        """Groups of a block that are summed together, where `depth` quads may be: int64, a divisor of a block's."""
        parts = 1
        while GROUP << self._form.rounded > 2 * QUAD * depth * parts:
            parts *= 2
        return self._builder.sdiv(self.of_block, constant(parts)) if depth > 1 else self.of_block

    def quads(self, panel: int, group: Any) -> list[Any]:
        """The quads of a group, int32 [LANES] each."""
        builder, form = self._builder, self._form
        place = self._place(panel, self.groups, group)
        if form.low == GROUP:
            first = builder.mul(place, constant(2))
            return [load(builder, self._fields["address"], builder.add(first, constant(n)), WORDS) for n in (0, LANES)]
        low = self._pairs("address", place, form.low)
        mask = _repeated((1 << form.low) - 1)
        found = [masked(builder, low, mask), masked(builder, shifted(builder, low, form.low), mask)]
        if form.high:
            high, mask = self._pairs("high", place, form.high), _repeated((1 << form.high) - 1 << form.low)
            above = [masked(builder, shifted(builder, high, shift - form.low), mask) for shift in (0, form.high)]
            found = [builder.or_(one, other) for one, other in zip(found, above, strict=True)]
        return [look_up_bytes(builder, self._fields["code"], quad) for quad in found] if form.coded else found

    def _pairs(self, field: str, place: Any, bits: int) -> Any:
        """The numbers of a group in a plane: two in the lowest bits of a byte, the even input's in the lower ones."""
        builder = self._builder
        if bits == 2:
            first = builder.mul(place, constant(2))
            octets = load(builder, self._fields[field], first, ir.VectorType(ir.IntType(8), 2 * LANES), 1)
            found = builder.bitcast(builder.zext(octets, ir.VectorType(ir.IntType(16), 2 * LANES)), WORDS)
            return builder.or_(found, shifted(builder, found, -4))
        found = builder.zext(self._bytes(field, place, bits), WORDS)
        if bits == 1:
            halves = builder.or_(found, shifted(builder, found, -12))
            found = masked(builder, halves, 0x000F000F)
            return builder.or_(found, shifted(builder, found, -6))
        return found

    def group(self, panel: int, group: Any) -> Any:
        return self.quads(panel, group)

    def value(self, group: Any, number: int, aligned: bool = False) -> Any:
        quad, byte = divmod(number, QUAD) if self._form.low == GROUP else (number % 2, number // 2)
        raised = self._builder.shl(group[quad], words(24 - 8 * byte))
        right = self._builder.ashr if self.signed else self._builder.lshr
        return self._builder.sitofp(right(raised, words(24)), VECTOR)

    @property
    def few_groups(self) -> int:
        """The groups of a block of one or two; 0 for more."""
        return self._form.rounded if self._form.low < GROUP and self._form.rounded <= 2 else 0

    @property
    def by_supers(self) -> bool:
        """True where a row has a scale for each super-block, whose blocks have whole scales."""
        return self._form.by_supers

    @property
    def of_scale(self) -> Any:
        """Blocks that have one scale of a row: int64."""
        return self._builder.sdiv(constant(SUPER_BLOCK), self.block) if self.by_supers else constant(1)

    def factors_of(self, panel: int, number: int) -> tuple[Any, Any]:
        """The factors of a block, or those of a super-block, as `factors`."""
        if not self.by_supers:
            return self.factors(panel, number)
        scale, shift = self.supers(panel, number)
        return self._builder.fmul(scale, splat(2.0**-self.unit)) if self.unit else scale, shift

    def add_rounded(self, sums: Any, factors: tuple[Any, Any], total: Any, scale: Any, onto: Any) -> Any:
        """`onto` plus sums, int32 [LANES], scaled; zero points or minimums are taken away `total` times.

        `total` is an int32 or, of super-blocks, int32 [LANES]; `scale` is that of the row.
        """
        builder, (of_weights, shift) = self._builder, factors
        values, scales = builder.sitofp(sums, VECTOR), broadcast(builder, scale)
        if shift is None:
            return fma(builder, builder.fmul(values, scales), of_weights, onto)
        numbers = builder.sitofp(total if total.type == WORDS else broadcast(builder, total), VECTOR)
        less = builder.fneg(numbers)
        if self._form.shifts == ZEROS:
            return fma(builder, builder.fmul(fma(builder, less, shift, values), scales), of_weights, onto)
        found = fma(builder, builder.fmul(values, scales), of_weights, onto)
        return fma(builder, builder.fmul(less, scales), shift, found)


@primitive
def multiply_rounded(
    builder: Any,
    form: int,
    few: int,
    rest: int,
    panels: int,
    rows: Count,
    codes: Address,
    scales: Address,
    totals: Address,
    matrix: Address,
    first: Count,
    y: Address,
    y_row: Count,
) -> None:
    """y[r, 16 p ...] = the products of `rows` rows of `round_rows` with `panels` panels of a PRODUCT from `first` on.

    y is float32, its rows `y_row` elements apart. `few` rows go together; with `rest` their number need not be a
    multiple of it.
    """
    weights = ByteReader(builder, form, matrix, first)
    inputs, done = builder.mul(weights.blocks, weights.block), constant(0)
    scaled = builder.sdiv(weights.blocks, weights.of_scale)
    while few:
        tiles = builder.sdiv(builder.sub(rows, done), constant(few))
        with cgutils.for_range(builder, tiles) as loop:
            row = builder.add(done, builder.mul(loop.index, constant(few)))

            def of(address: Any, elements: Any, width: int, row: Any = row) -> Any:
                return builder.add(address, builder.mul(builder.mul(row, elements), constant(width)))

            of_rows = RoundedRows(of(codes, inputs, 1), of(scales, scaled, 4), of(totals, weights.blocks, 4), inputs)
            _tile(builder, weights, few, panels, of_rows, of(y, y_row, 4), y_row)
        done = builder.add(done, builder.mul(tiles, constant(few)))
        few = few // 2 if rest else 0


class RoundedRows(NamedTuple):
    """Addresses of what `round_rows` made of rows of `inputs` values."""

    codes: Any
    scales: Any
    totals: Any
    inputs: Any


def _tile(builder: Any, weights: ByteReader, rows: int, panels: int, x: RoundedRows, y: Any, y_row: Any) -> None:
    """Multiply `rows` rows with `panels` panels."""
    dots = WAYS[way()](builder, weights.signed)
    begins = [builder.mul(y_row, constant(r)) for r in range(rows)]
    outs = [[builder.add(begin, constant(LANES * p)) for p in range(panels)] for begin in begins]
    for out in (out for row in outs for out in row):
        store(builder, splat(0.0), y, out)
    each = weights.of_scale
    scaled = builder.sdiv(weights.blocks, each)
    with cgutils.for_range(builder, scaled) as outer:
        sums, shifts = (_slots(builder, rows, panels) for _ in range(2))
        with cgutils.for_range(builder, each) as inner:
            block = builder.add(builder.mul(outer.index, each), inner.index)
            _add_block(builder, weights, dots, block, x, sums, shifts)
        factors = [weights.factors_of(p, outer.index) for p in range(panels)]
        for r, row in enumerate(outs):
            scale = load(builder, x.scales, builder.add(builder.mul(scaled, constant(r)), outer.index), F32)
            for p, out in enumerate(row):
                total = builder.load(shifts[r][p]) if weights.by_supers else _total(builder, weights, x, r, outer.index)
                found = weights.add_rounded(builder.load(sums[r][p]), factors[p], total, scale, load(builder, y, out))
                store(builder, found, y, out)


def _slots(builder: Any, rows: int, panels: int) -> list[list[Any]]:
    """Slots of sums by row and panel: int32 [LANES], zeros."""
    found = [[cgutils.alloca_once(builder, WORDS) for _ in range(panels)] for _ in range(rows)]
    for slot in (slot for row in found for slot in row):
        builder.store(words(0), slot)
    return found


def _total(builder: Any, weights: ByteReader, x: RoundedRows, row: int, block: Any) -> Any:
    """The sum of the numbers of a row in a block."""
    return load(builder, x.totals, builder.add(builder.mul(weights.blocks, constant(row)), block), I32)


def _add_block(
    builder: Any,
    weights: ByteReader,
    dots: Dots,
    block: Any,
    x: RoundedRows,
    sums: list[list[Any]],
    shifts: list[list[Any]],
) -> None:
    """Add the products of a block to `sums` and, of super-blocks with minimums, those of its total to `shifts`.

    Groups are added in a loop if there are more than two, as a compiler that sees many reads them all before it
    multiplies, for which there are too few registers.
    """
    rows, panels, depth = len(sums), len(sums[0]), dots.depth(weights.most)
    together = weights.together(depth)
    scales: list[Any] = [None] * panels
    minimums: list[Any] = [None] * panels
    if weights.by_supers:
        numbers = [weights.numbers(p, block) for p in range(panels)]
        minimums = [minimum for _, minimum in numbers]
        scales = [dots.scales(scale) for scale, _ in numbers]
    partial = [[dots.slots() for _ in range(panels)] for _ in range(rows)]

    def add(number: Any) -> None:
        """Add the products of a group of the block."""
        group = builder.add(builder.mul(block, weights.of_block), number)
        for p in range(panels):
            fetch_group(builder, weights, panels + p, group)
        of_panels = [weights.quads(p, group) for p in range(panels)]
        for n, quads in enumerate(zip(*of_panels, strict=True)):
            place = builder.add(builder.mul(group, constant(GROUP)), constant(QUAD * n))
            pieces = [dots.weights(quad) for quad in quads]
            for r in range(rows):
                four = dots.inputs(x.codes, builder.add(builder.mul(x.inputs, constant(r)), place))
                for slots, piece in zip(partial[r], pieces, strict=True):
                    dots.add(slots, piece, four)
            if depth == 1:
                _drain(builder, dots, partial, scales, sums)

    def drain() -> None:
        if depth > 1:
            _drain(builder, dots, partial, scales, sums)

    if weights.few_groups:
        for number in range(weights.few_groups):
            add(constant(number))
            if (number + 1) % max(1, depth // 2) == 0 or number + 1 == weights.few_groups:
                drain()
    else:
        with cgutils.for_range(builder, builder.sdiv(weights.of_block, together)) as outer:
            with cgutils.for_range(builder, together) as loop:
                add(builder.add(builder.mul(outer.index, together), loop.index))
            drain()
    taken = weights.offset - dots.less * weights.signed
    for r, row in enumerate(sums):
        total = _total(builder, weights, x, r, block)
        for p, slot in enumerate(row):
            if taken:
                less = broadcast(builder, builder.mul(_brief(builder, weights, total), ir.Constant(I32, taken)))
                if weights.by_supers:
                    less = builder.mul(less, numbers[p][0])
                builder.store(builder.sub(builder.load(slot), less), slot)
            if minimums[p] is not None:
                added = builder.mul(broadcast(builder, _brief(builder, weights, total)), minimums[p])
                builder.store(builder.add(builder.load(shifts[r][p]), added), shifts[r][p])


def _brief(builder: Any, weights: ByteReader, total: Any) -> Any:
    """A total as a compiler multiplies it fastest: of a block of a super-block it has 16 bits."""
    return builder.sext(builder.trunc(total, ir.IntType(16)), I32) if weights.by_supers else total


def _drain(builder: Any, dots: Dots, partial: list[list[Any]], scales: list[Any], sums: list[list[Any]]) -> None:
    """Add partial sums, times whole scales if any, to those of a block, and begin them again."""
    for row, totals in zip(partial, sums, strict=True):
        for slots, scale, total in zip(row, scales, totals, strict=True):
            builder.store(builder.add(builder.load(total), dots.summed(slots, scale)), total)


def _repeated(byte: int) -> int:
    """An int32 of four equal bytes."""
    return int.from_bytes(bytes([byte] * 4), "little", signed=True)
