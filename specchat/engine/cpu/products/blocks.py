"""Weights in blocks as the inner loops read them: numbers of 2 to 8 bits, scales, and minimums or zero points."""

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from specchat.engine.cpu.primitives.records import PRODUCT, places
from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    I64,
    VECTOR,
    WORDS,
    broadcast,
    byte_tables,
    constant,
    fma,
    instruction,
    load,
    masked,
    shifted,
    splat,
    wide_vectors,
    words,
)
from specchat.engine.cpu.products.block_form import (
    EXPONENTS,
    FLOATS,
    HALVES,
    LINE,
    MINIMUMS,
    PAIRED,
    SIGNED,
    TABLED,
    UNSHIFTED,
    ZEROS,
    BlockForm,
)
from specchat.engine.cpu.products.codebooks import gather
from specchat.engine.cpu.products.grid_reader import GridReader
from specchat.engine.formats.grids import GROUP, SUPER_BLOCK
from specchat.engine.memory.vectors import LANES

PARTS = ("address", "high", "scales", "signs", "shifts", "supers", "shift_supers", "code")
"""Fields of a PRODUCT that are addresses of its weights."""
MANTISSA = 23
"""Bits of a float32 after the leading one."""
SPAN = 16
"""Bits of a word from whose places numbers are taken without a shift."""


class BlockReader:
    """Code that reads the weights of a product's panels from panel `first` on.

    Attributes:
        blocks, groups: of a row, int64.
        block, of_block: inputs and groups of a block, int64.
        has_totals: True where products need the sums of the inputs of blocks.
        turn: inputs of a group.
    """

    def __init__(self, builder: Any, form: int, matrix: Any, first: Any) -> None:
        self._builder, self._form, self._first = builder, BlockForm.of(form), first
        # Loaded here, as a compiler cannot know that what is written later lies elsewhere.
        self.fields = {
            name: load(builder, matrix, constant(places(PRODUCT)[name]), I64, 8) for name in ("inputs", "block", *PARTS)
        }
        self._table = load(builder, self.fields["code"], constant(0)) if self._form.coded else None
        inputs, self.block = self.fields["inputs"], self.fields["block"]
        self.blocks = builder.sdiv(inputs, self.block)
        self.groups = self._shared(inputs, GROUP)
        self.of_block = self._shared(self.block, GROUP)
        self._supers = self._shared(inputs, SUPER_BLOCK)
        self.turn, self._grid = GROUP, None
        if (grid := self._form.of_grid) is not None:
            codebook = builder.add(self.fields["code"], constant(self._form.code_bytes))
            self._grid = GridReader(builder, self, grid, codebook)

    @property
    def has_totals(self) -> bool:
        return self._form.has_totals

    def _shared(self, count: Any, size: int) -> Any:
        return self._builder.lshr(count, constant(size.bit_length() - 1))

    def element(self, panel: int, of_row: Any, index: Any) -> Any:
        """Element of the first lane of vector `index` of a panel, of `of_row` vectors each."""
        builder = self._builder
        before = builder.mul(builder.add(self._first, constant(panel)), of_row)
        return builder.mul(builder.add(before, index), constant(LANES))

    def octets(self, field: str, place: Any, width: int) -> Any:
        """LANES whole numbers of `width` bytes, as they are stored."""
        return load(self._builder, self.fields[field], place, ir.VectorType(ir.IntType(8 * width), LANES), width)

    def _halves(self, field: str, place: Any) -> Any:
        return self._builder.fpext(
            load(self._builder, self.fields[field], place, ir.VectorType(ir.HalfType(), LANES), 2), VECTOR
        )

    def lines(self, panel: int, group: Any) -> Iterator[tuple[Any, Any]]:
        """Address and byte of each cache line of a group in the planes."""
        if self._grid:
            yield from self._grid.lines(panel, group, self.turn)
            return
        place = self.element(panel, self.groups, group)
        for field, width in (("address", self._form.low), ("high", self._form.high)):
            for line in range(0, LANES * width, LINE):
                octet = self._builder.mul(place, constant(width))
                yield self.fields[field], self._builder.add(octet, constant(line))

    def group(self, panel: int, group: Any) -> Any:
        """Load a group of a panel, for `value`: a word for each plane, or a place in bytes."""
        if self._grid:
            return self._grid.words(panel, group), None
        place = self.element(panel, self.groups, group)
        if self._form.low == GROUP:
            return self._builder.mul(place, constant(GROUP)), None
        low = self.octets("address", place, self._form.low)
        high = self.octets("high", place, self._form.high) if self._form.high else None
        return self._builder.zext(low, WORDS), high and self._builder.zext(high, WORDS)

    def value(self, group: Any, number: int, aligned: bool = False) -> Any:
        """The values of a number of a group, without scales and offset: float32 [LANES].

        They are times 2 ** `unit`; unless `aligned`, they are so once they are times 2 ** `raised(number)`.
        """
        builder, form, (low, high) = self._builder, self._form, group
        if form.low == GROUP:
            place = builder.add(low, constant(LANES * number))
            return builder.sitofp(self.octets("address", place, 1), VECTOR)
        if form.coded and high is None:
            return look_up(builder, self.fields["code"], self._table, shifted(builder, low, form.low * number))
        # The word is shifted where its numbers would need further masks.
        begin = self.unit if aligned else form.low * number % SPAN
        low = shifted(builder, low, form.low * number - begin)
        found = masked(builder, low, (1 << form.low) - 1 << begin)
        if high is not None:
            above = begin + form.low
            high = shifted(builder, high, form.high * form.field(number) - above)
            found = builder.or_(found, masked(builder, high, (1 << form.high) - 1 << above))
        if form.coded:
            return look_up(builder, self.fields["code"], self._table, shifted(builder, found, begin))
        return builder.sitofp(found, VECTOR)

    @property
    def unit(self) -> int:
        """The power of two that values are raised by: inputs are multiplied by whole ones, so that none underflows."""
        return 0 if self._form.coded or self._form.low == GROUP else SPAN - self._form.low

    def raised(self, number: int) -> int:
        """The power of two that the input of a number is raised by for a value that is not aligned."""
        return self.unit and self.unit - self._form.low * number % SPAN

    def factors(self, panel: int, block: Any) -> tuple[Any, Any]:
        """The scale and what is taken away of a block of a panel: float32 [LANES], None where nothing is.

        The scale is less by 2 ** `unit`.
        """
        scale, shift = self._factors(panel, block)
        return self._builder.fmul(scale, splat(2.0**-self.unit)) if self.unit else scale, shift

    def _factors(self, panel: int, block: Any) -> tuple[Any, Any]:
        builder, scales, shifts = self._builder, self._form.scales, self._form.shifts
        place = self.element(panel, self.blocks, block)
        if scales in (FLOATS, EXPONENTS, TABLED):
            scale = self._from_byte(place) if scales != FLOATS else load(builder, self.fields["scales"], place)
            return scale, self._zeros(place) if shifts == ZEROS else None
        if scales == HALVES:
            return self._halves("scales", place), self._halves("shifts", place) if shifts == MINIMUMS else None
        numbers = self.numbers(panel, block)
        supers = self.supers(panel, self._shared(builder.mul(block, self.block), SUPER_BLOCK))
        scale, shift = (
            None if number is None else builder.fmul(builder.sitofp(number, VECTOR), of_super)
            for number, of_super in zip(numbers, supers, strict=True)
        )
        return scale, shift

    def numbers(self, panel: int, block: Any) -> tuple[Any, Any]:
        """The whole numbers of a block that its super-block's scale and minimum multiply: int32 [LANES], or None."""
        builder, form = self._builder, self._form
        if self._grid:
            return self._grid.scale(panel, block), None
        place = self.element(panel, self.blocks, block)
        widen = builder.sext if form.scales == SIGNED else builder.zext
        octets = self.octets("scales", place, 1)
        if form.shifts == PAIRED:
            four = ir.Constant(octets.type, [4] * LANES)
            low = builder.and_(octets, ir.Constant(octets.type, [15] * LANES))
            return widen(low, WORDS), widen(builder.lshr(octets, four), WORDS)
        shift = widen(self.octets("shifts", place, 1), WORDS) if form.shifts == MINIMUMS else None
        return widen(octets, WORDS), shift

    def supers(self, panel: int, of_super: Any) -> tuple[Any, Any]:
        """The scale and the minimum of a super-block: float32 [LANES], or None."""
        place = self.element(panel, self._supers, of_super)
        shift = None if self._form.shifts == UNSHIFTED else self._halves("shift_supers", place)
        return self._halves("supers", place), shift

    def _from_byte(self, first: Any) -> Any:
        """Scales by their bytes: of a table, or powers of two by their exponents.

        That of exponent 0 is below the normal numbers, half of the next one's.
        """
        builder = self._builder
        octets = builder.zext(self.octets("scales", first, 1), WORDS)
        if self._form.scales == TABLED:
            table = builder.add(self.fields["code"], constant(self._form.code_bytes))
            return builder.bitcast(gather(builder, table, octets), VECTOR)
        bits = shifted(builder, octets, -MANTISSA)
        least = words(1 << MANTISSA - 1)
        return builder.bitcast(builder.select(builder.icmp_signed(">", bits, least), bits, least), VECTOR)

    def _zeros(self, first: Any) -> Any:
        return self._builder.sitofp(self.octets("shifts", first, 1), VECTOR)

    def add(self, sums: Any, factors: tuple[Any, Any], total: Any, onto: Any) -> Any:
        """Return `onto` plus a block's sums, scaled; `total` is the sum of its inputs."""
        builder, (scale, shift) = self._builder, factors
        less = None if total is None else broadcast(builder, builder.fneg(total))
        if self._form.offset:
            sums = fma(builder, less, splat(float(self._form.offset << self.unit)), sums)
        if self._form.shifts == ZEROS:
            # The zero multiplies the sum of the inputs, which saves a subtraction for each weight.
            sums = fma(builder, less, shift, sums)
        found = fma(builder, sums, scale, onto)
        return found if shift is None or self._form.shifts == ZEROS else fma(builder, less, shift, found)

    def scaled(self, value: Any, factors: tuple[Any, Any]) -> Any:
        """A weight of its value, as `quantise.dequantised` computes it."""
        builder, (scale, shift) = self._builder, factors
        if shift is not None and self._form.shifts == ZEROS:
            value = builder.fsub(value, shift)
        if self._form.offset:
            value = builder.fsub(value, splat(float(self._form.offset << self.unit)))
        found = builder.fmul(value, scale)
        return found if shift is None or self._form.shifts == ZEROS else builder.fsub(found, shift)


def look_up(builder: Any, code: Any, table: Any, indices: Any) -> Any:
    """Look up code[index] in every lane, by the lowest four bits of its index; `table` is the code as a vector."""
    if wide_vectors():
        return instruction(builder, "llvm.x86.avx512.permvar.sf.512", VECTOR, [table, indices])
    if byte_tables():
        return _chosen(builder, table, indices)
    found = ir.Constant(VECTOR, ir.Undefined)
    for lane in range(LANES):
        place = ir.Constant(I32, lane)
        index = builder.zext(builder.extract_element(masked(builder, indices, 15), place), I64)
        found = builder.insert_element(found, load(builder, code, index, F32, 4), place)
    return found


def _chosen(builder: Any, table: Any, indices: Any) -> Any:
    """Look up in both halves of a table, and choose by the fourth bit."""
    upper = builder.icmp_signed("<", builder.shl(indices, words(28)), words(0))
    halves = [_lanes(builder, table, first) for first in (0, LANES // 2)]
    found = [
        [
            instruction(builder, "llvm.x86.avx2.permps", half.type, [half, _lanes(builder, indices, first)])
            for first in (0, LANES // 2)
        ]
        for half in halves
    ]
    lower, higher = (builder.shuffle_vector(*parts, _numbers(range(LANES))) for parts in found)
    return builder.select(upper, higher, lower)


def _lanes(builder: Any, vector: Any, first: int) -> Any:
    """Half of the lanes of a vector, from `first` on."""
    return builder.shuffle_vector(vector, vector, _numbers(range(first, first + LANES // 2)))


def _numbers(values: Any) -> Any:
    return ir.Constant(ir.VectorType(I32, len(values)), list(values))
