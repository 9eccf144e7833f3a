"""Weights in blocks as products of rows of bytes read them: four whole numbers of each output in a word."""

from typing import Any

from llvmlite import ir

from specchat.engine.cpu.primitives.simd import (
    VECTOR,
    WORDS,
    broadcast,
    constant,
    fma,
    load,
    masked,
    shifted,
    splat,
    words,
)
from specchat.engine.cpu.products import dots
from specchat.engine.cpu.products.block_form import ZEROS, BlockForm
from specchat.engine.cpu.products.blocks import BlockReader
from specchat.engine.cpu.products.codebooks import QUAD, input_order
from specchat.engine.cpu.products.dots import look_up_bytes, signed
from specchat.engine.formats.grids import GROUP, SUPER_BLOCK
from specchat.engine.memory.vectors import LANES


class ByteReader(BlockReader):
    """Code that reads the weights of a product as quads: four whole numbers of each output in a word.

    Of fewer than 8 bits, the first quad of a group has the even inputs. Codes are looked up in a table of bytes. Quads
    of a codebook are magnitudes, in the order of `codebooks.input_order`.

    Attributes:
        turn: inputs whose quads are read at a time.
    """

    def __init__(self, builder: Any, form: int, matrix: Any, first: Any) -> None:
        super().__init__(builder, form, matrix, first)
        grid, self._order = self._form.of_grid, byte_order(form)
        self.turn = grid.turn if grid else GROUP
        self.of_block = builder.lshr(self.block, constant(self.turn.bit_length() - 1))

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
        whole = depth < self.turn // QUAD
        return self.of_block if whole else self._builder.sdiv(self.of_block, constant(parts))

    def group(self, panel: int, group: Any) -> list[tuple[Any, Any]]:
        """The quads of a turn, int32 [LANES] each, and of magnitudes which bytes are negative, else None."""
        if self._grid:
            return self._grid.quads(panel, group, self.fields["code"])
        return [(quad, None) for quad in self._quads(panel, group)]

    def _quads(self, panel: int, group: Any) -> list[Any]:
        builder, form = self._builder, self._form
        place = self.element(panel, self.groups, group)
        if form.low == GROUP:
            first = builder.mul(place, constant(2))
            return [load(builder, self.fields["address"], builder.add(first, constant(n)), WORDS) for n in (0, LANES)]
        low = self._pairs("address", place, form.low)
        mask = _repeated((1 << form.low) - 1)
        found = [masked(builder, low, mask), masked(builder, shifted(builder, low, form.low), mask)]
        if form.high:
            high, mask = self._pairs("high", place, form.high), _repeated((1 << form.high) - 1 << form.low)
            above = [masked(builder, shifted(builder, high, shift - form.low), mask) for shift in (0, form.high)]
            found = [builder.or_(one, other) for one, other in zip(found, above, strict=True)]
        return [look_up_bytes(builder, self.fields["code"], quad) for quad in found] if form.coded else found

    def _pairs(self, field: str, place: Any, bits: int) -> Any:
        """The numbers of a group in a plane: two in the lowest bits of a byte, the even input's in the lower ones."""
        builder = self._builder
        if bits == 2:
            first = builder.mul(place, constant(2))
            octets = load(builder, self.fields[field], first, ir.VectorType(ir.IntType(8), 2 * LANES), 1)
            found = builder.bitcast(builder.zext(octets, ir.VectorType(ir.IntType(16), 2 * LANES)), WORDS)
            return builder.or_(found, shifted(builder, found, -4))
        found = builder.zext(self.octets(field, place, bits), WORDS)
        if bits == 1:
            halves = builder.or_(found, shifted(builder, found, -12))
            found = masked(builder, halves, 0x000F000F)
            return builder.or_(found, shifted(builder, found, -6))
        return found

    def value(self, group: Any, number: int, aligned: bool = False) -> Any:
        quad, byte = divmod(self._order.index(number), QUAD)
        found = signed(self._builder, *group[quad])
        if self._grid:
            found = self._builder.xor(found, words(_repeated(dots.WAYS[dots.way()].less & 255)))
        raised = self._builder.shl(found, words(24 - 8 * byte))
        right = self._builder.ashr if self.signed else self._builder.lshr
        return self._builder.sitofp(right(raised, words(24)), VECTOR)

    @property
    def few_groups(self) -> int:
        """The turns of a block of one or two; 0 for more."""
        if self.turn > GROUP:
            return (GROUP << self._form.rounded - 1) // self.turn
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


_PAIRED = [0, 2, 4, 6, 1, 3, 5, 7]


def byte_order(form: int) -> list[int]:
    """The inputs of rows of bytes beside the weights of a format, so many at a time."""
    of = BlockForm.of(form)
    if of.of_grid:
        return input_order(of.of_grid)
    return _PAIRED if of.low < GROUP else [*range(GROUP)]


def _repeated(byte: int) -> int:
    """An int32 of four equal bytes."""
    return int.from_bytes(bytes([byte] * 4), "little", signed=True)
