"""Weights by a codebook as products read them: rows of magnitudes that are looked up, and their signs."""

from collections.abc import Iterator
from typing import Any, Protocol

from llvmlite import ir

from specchat.engine.cpu.primitives.simd import (
    I32,
    WORDS,
    broadcast,
    constant,
    features,
    instruction,
    masked,
    shifted,
    words,
)
from specchat.engine.cpu.products.block_form import LINE
from specchat.engine.cpu.products.codebooks import OCTETS, QUAD, gather, in_registers, input_order, look_up_rows
from specchat.engine.cpu.products.dots import look_up_bytes
from specchat.engine.formats.grids import GROUP, QUARTER, GridType
from specchat.engine.memory.vectors import LANES

SEVENS = 7
"""Bits of the signs of a group where the eighth follows from them."""


class PanelReader(Protocol):
    """Reads numbers of panels of outputs.

    Attributes:
        fields: addresses of a weight's parts, by name.
        blocks, groups: of a row of weights.
    """

    fields: dict[str, Any]
    blocks: Any
    groups: Any

    def octets(self, field: str, place: Any, width: int) -> Any:
        """LANES whole numbers of `width` bytes."""
        ...

    def element(self, panel: int, of_row: Any, index: Any) -> Any:
        """The element of a panel's first output in vector `index` of `of_row`."""
        ...


class GridReader:
    """Code that looks rows up in a codebook, which lies at an address as `codebooks.table_of` makes it."""

    def __init__(self, builder: Any, reader: PanelReader, grid: GridType, codebook: Any) -> None:
        self._builder, self._reader, self._grid, self._codebook = builder, reader, grid, codebook

    def words(self, panel: int, group: Any) -> Any:
        """The numbers of a group, four bits each, the first in the lowest: int32 [LANES]."""
        builder = self._builder
        rows, signs = self._of_group(panel, group)
        found = [gather(builder, self._codebook, one) for one in rows]
        numbers = found[0] if len(found) == 1 else builder.or_(found[0], shifted(builder, found[1], -16))
        for by, mask in ((12, 0x000F000F), (6, 0x03030303), (3, 0x11111111)):
            signs = masked(builder, builder.or_(signs, shifted(builder, signs, -by)), mask)
        return builder.or_(numbers, shifted(builder, signs, -3))

    def quads(self, panel: int, turn: Any, code: Any) -> list[tuple[Any, Any]]:
        """The magnitudes of each quad of a turn, int32 [LANES], and which are negative, int1 [4 LANES].

        `code` is the address of the values of numbers, 16 bytes.
        """
        builder, grid = self._builder, self._grid
        quarter, half = self._in_parts(turn, QUARTER * GROUP // grid.turn)
        low = self._read("address", panel, grid.turn // GROUP, turn, grid.widths(True)[0])
        high = self._moved(self._read("high", panel, QUARTER, quarter, 1), half, 4) if grid.high_bits else None
        signs = self._signs_of_turn(low, panel, turn, quarter, half)
        if in_registers(grid):
            ninth = None if high is None else self._set(high, [0] * QUAD, [*range(QUAD)])
            found = look_up_rows(builder, grid, self._codebook, low, ninth)
            found = [look_up_bytes(builder, code, one) for one in found]
        else:
            found = self._gathered(self._rows(low, high), code)
        order = input_order(grid)
        inputs = [order[first : first + QUAD] for first in range(0, grid.turn, QUAD)]
        apart = 2 if grid.signs == "paired" else 1
        negative = [self._set(signs, [n // GROUP * apart for n in one], [n % GROUP for n in one]) for one in inputs]
        return [*zip(found, negative, strict=True)]

    def scale(self, panel: int, block: Any) -> Any:
        """The scale of a block, an odd number: int32 [LANES]."""
        builder, reader = self._builder, self._reader
        if self._grid.signs == "in scales":
            found = shifted(builder, self._read("scales", panel, QUARTER, block, QUAD), 28)
        else:
            pair, second = self._in_parts(block, 2)
            octets = reader.octets("scales", reader.element(panel, builder.lshr(reader.blocks, constant(1)), pair), 1)
            found = masked(builder, self._moved(builder.zext(octets, WORDS), second, 4), 15)
        return builder.or_(shifted(builder, found, -1), words(1))

    def lines(self, panel: int, turn: Any, inputs: int) -> Iterator[tuple[Any, Any]]:
        """Address and byte of each cache line of a turn of so many inputs."""
        builder, reader, grid = self._builder, self._reader, self._grid
        groups = inputs // GROUP
        first = reader.element(panel, reader.groups, builder.mul(turn, constant(groups)))
        for line in range(0, groups * grid.row_bytes * LANES, LINE):
            octet = builder.add(builder.mul(first, constant(grid.row_bytes)), constant(line))
            yield reader.fields["address"], octet
        if grid.signs == "in scales":
            yield reader.fields["scales"], first
            return
        if grid.signs == "apart":
            yield reader.fields["signs"], first
            yield reader.fields["high"], builder.lshr(first, constant(2))
        yield reader.fields["scales"], builder.lshr(first, constant(2 if grid.values == GROUP else 3))

    def _in_parts(self, index: Any, parts: int) -> tuple[Any, Any]:
        """The whole that an index of one of so many parts lies in, and the number of the part."""
        bits, last = constant(parts.bit_length() - 1), constant(parts - 1)
        return self._builder.lshr(index, bits), self._builder.and_(index, last)

    def _read(self, field: str, panel: int, groups: int, index: Any, width: int) -> Any:
        """A number of so many groups: int32 [LANES]."""
        builder, reader = self._builder, self._reader
        of_row = builder.lshr(reader.groups, constant(groups.bit_length() - 1))
        found = reader.octets(field, reader.element(panel, of_row, index), width)
        return found if found.type == WORDS else builder.zext(found, WORDS)

    def _moved(self, numbers: Any, number: Any, bits: int) -> Any:
        """Numbers shifted to the right by `number` times so many bits."""
        builder = self._builder
        return builder.lshr(numbers, broadcast(builder, builder.trunc(builder.mul(number, constant(bits)), I32)))

    def _of_group(self, panel: int, group: Any) -> tuple[list[Any], Any]:
        """The numbers of a group's rows, and its signs in the lowest eight bits."""
        builder, grid = self._builder, self._grid
        low, (quarter, number) = self._read("address", panel, 1, group, grid.row_bytes), self._in_parts(group, QUARTER)
        high = self._moved(self._read("high", panel, QUARTER, quarter, 1), number, 2) if grid.high_bits else None
        rows = self._rows(low, high, GROUP)
        if grid.signs == "apart":
            return rows, self._read("signs", panel, 1, group, 1)
        if grid.signs == "paired":
            return rows, self._even(shifted(builder, low, 9), 1)
        sevens = self._moved(self._read("scales", panel, QUARTER, quarter, QUAD), number, SEVENS)
        return rows, self._even(masked(builder, sevens, 127), 1)

    def _rows(self, low: Any, high: Any, inputs: int = 0) -> list[Any]:
        """The numbers of the rows of so many inputs, of a turn for 0."""
        builder, grid = self._builder, self._grid
        count, bits = (inputs or grid.turn) // grid.values, 16 if grid.signs == "paired" else 8
        rows = [shifted(builder, low, bits * row) for row in range(count)]
        rows = [masked(builder, row, 511 if grid.signs == "paired" else 255) for row in rows]
        if high is None:
            return rows
        more = [
            masked(builder, shifted(builder, high, grid.high_bits * row), (1 << grid.high_bits) - 1)
            for row in range(count)
        ]
        return [builder.or_(row, shifted(builder, one, -8)) for row, one in zip(rows, more, strict=True)]

    def _signs_of_turn(self, low: Any, panel: int, turn: Any, quarter: Any, half: Any) -> Any:
        """The signs of the groups of a turn, a byte each; the first and the third where they lie beside row numbers."""
        builder, grid = self._builder, self._grid
        if grid.signs == "apart":
            return self._read("signs", panel, grid.turn // GROUP, turn, grid.turn // GROUP)
        if grid.signs == "paired":
            return self._even(masked(builder, shifted(builder, low, 9), 0x007F007F), 0x00010001)
        word = self._read("scales", panel, QUARTER, quarter, QUAD)
        parts = [masked(builder, shifted(builder, word, -n), 127 << 8 * n) for n in range(QUARTER)]
        joined = builder.or_(builder.or_(parts[0], parts[1]), builder.or_(parts[2], parts[3]))
        return self._moved(self._even(joined, 0x01010101), half, 16)

    def _even(self, signs: Any, each: int) -> Any:
        """Bytes of eight signs of seven, of which an even number is set; `each` has a bit for every byte."""
        builder = self._builder
        if "+avx512bitalg" in features().split(","):
            octets = instruction(builder, f"llvm.ctpop.v{OCTETS.count}i8", OCTETS, [builder.bitcast(signs, OCTETS)])
            eighth = shifted(builder, builder.bitcast(octets, WORDS), -7)
        else:
            eighth = signs
            for by in (1, 2, 4):
                below = masked(builder, eighth, each * (255 >> by))
                eighth = builder.xor(eighth, shifted(builder, below, -by))
        return builder.or_(signs, masked(builder, eighth, each << 7))

    def _set(self, numbers: Any, octets: list[int], bits: list[int]) -> Any:
        """True where a bit of a byte of each number is set, for the four bytes of a word: int1 [4 LANES]."""
        builder = self._builder
        whole = builder.bitcast(numbers, OCTETS)
        if octets != [*range(QUAD)]:
            chosen = [QUAD * lane + octet for lane in range(LANES) for octet in octets]
            whole = builder.shuffle_vector(whole, whole, ir.Constant(ir.VectorType(I32, OCTETS.count), chosen))
        mask = ir.Constant(OCTETS, [1 << bit for bit in bits] * LANES)
        return builder.icmp_unsigned("!=", builder.and_(whole, mask), ir.Constant(OCTETS, [0] * OCTETS.count))

    def _gathered(self, rows: list[Any], code: Any) -> list[Any]:
        """Magnitudes of quads, in the order of their inputs."""
        builder = self._builder
        found = [gather(builder, self._codebook, row) for row in rows]
        if self._grid.values == QUAD:
            return found
        halves = [masked(builder, shifted(builder, one, shift), 0x0F0F0F0F) for one in found for shift in (0, 4)]
        return [look_up_bytes(builder, code, half) for half in halves]
