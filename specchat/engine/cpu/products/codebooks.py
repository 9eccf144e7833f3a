"""Codebooks as compiled products hold them, and how they look rows up: by addresses, or byte by byte in registers."""

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from specchat.engine.cpu.primitives.simd import (
    I32,
    I64,
    WORDS,
    byte_tables,
    constant,
    features,
    instruction,
    load,
    wide_vectors,
    words,
)
from specchat.engine.cpu.products import dots
from specchat.engine.formats.grids import GROUP, GridType
from specchat.engine.memory.vectors import LANES

QUAD = 4
"""Bytes of a word, and rows that a word of a turn has the numbers of."""
OCTETS = ir.VectorType(ir.IntType(8), QUAD * LANES)
OF_TWO = 128
"""Entries of two tables of bytes that an instruction looks up in."""
PLANES = 2
"""Bytes of a row of magnitudes."""


def in_registers(grid: GridType) -> bool:
    """True where rows of bytes are multiplied with rows that are looked up in registers."""
    has_tables = dots.way() == "AVX-512 VNNI" and "+avx512vbmi" in features().split(",")
    return has_tables and grid.turn // grid.values == QUAD


def input_order(grid: GridType) -> list[int]:
    """The inputs of a turn as rows of bytes have them, quad after quad: those of a register are of four rows."""
    if not in_registers(grid):
        return [*range(grid.turn)]
    return [first + grid.values * row for first in range(grid.values) for row in range(QUAD)]


def table_of(grid: GridType, rows: NDArray[np.int32], code: NDArray[np.int8] | None) -> NDArray[np.uint8]:
    """The bytes of a codebook int32 [rows] (`grids.grid_words`); `code`: for rows of bytes.

    Gathered are words of eight numbers, for rows of bytes those of both quads in turn, or of four values. In registers
    lie PLANES tables of a byte for each row, of four numbers or of two.
    """
    if code is None:
        return rows.view(np.uint8)
    numbers = rows[:, None] >> 4 * np.arange(grid.values) & 7
    if in_registers(grid):
        each = grid.values // PLANES
        found = (numbers.reshape(-1, PLANES, each) << GROUP // each * np.arange(each)).sum(2).T
    elif grid.values == QUAD:
        found = code[numbers]
    else:
        found = (numbers.reshape(-1, 2, QUAD) << np.array([[0], [4]])).sum(1)
    octets: NDArray[np.uint8] = found.astype(np.uint8).ravel()
    return octets


def look_up_rows(builder: Any, grid: GridType, codebook: Any, numbers: Any, ninth: Any) -> list[Any]:
    """The numbers of bytes of the quads of a turn, by four numbers of rows in a word: int32 [LANES] each.

    `ninth` int1 [4 LANES] are the highest bits of the numbers, if they have nine. Bits 4 to 6 of the result are any.
    """
    indices, rows = builder.bitcast(numbers, OCTETS), OF_TWO * (2 if ninth is None else 4)
    upper = builder.icmp_signed("<", indices, ir.Constant(OCTETS, [0] * OCTETS.count))
    each, found = grid.values // PLANES, []
    for plane in range(PLANES):
        parts = []
        for first in range(0, rows, OF_TWO):
            at = [constant(rows * plane + first + half) for half in (0, OF_TWO // 2)]
            tables = [load(builder, codebook, octet, OCTETS, 1) for octet in at]
            name = "llvm.x86.avx512.vpermi2var.qi.512"
            parts.append(instruction(builder, name, OCTETS, [tables[0], indices, tables[1]]))
        parts = [builder.select(upper, more, less) for less, more in zip(parts[::2], parts[1::2], strict=True)]
        one = builder.bitcast(parts[0] if ninth is None else builder.select(ninth, parts[1], parts[0]), WORDS)
        bits = GROUP // each
        shifted = [one, *(builder.lshr(one, words(bits * number)) for number in range(1, each))]
        found += shifted if bits == QUAD else [builder.and_(part, words(0x03030303)) for part in shifted]
    return found


def gather(builder: Any, address: Any, indices: Any) -> Any:
    """Look up int32 [LANES] in a table of int32, by indices int32 [LANES]."""
    if wide_vectors():
        return _gathered(builder, "llvm.x86.avx512.mask.gather.dpi.512", address, indices)
    if byte_tables():
        halves = [[*range(first, first + LANES // 2)] for first in (0, LANES // 2)]
        lanes = [ir.Constant(ir.VectorType(I32, LANES // 2), half) for half in halves]
        parts = [builder.shuffle_vector(indices, indices, half) for half in lanes]
        found = [_gathered(builder, "llvm.x86.avx2.gather.d.d.256", address, part) for part in parts]
        return builder.shuffle_vector(*found, ir.Constant(WORDS, [*range(LANES)]))
    found = ir.Constant(WORDS, ir.Undefined)
    for lane in (ir.Constant(I32, number) for number in range(LANES)):
        index = builder.zext(builder.extract_element(indices, lane), I64)
        found = builder.insert_element(found, load(builder, address, index, I32, 4), lane)
    return found


def _gathered(builder: Any, name: str, address: Any, indices: Any) -> Any:
    kind, count = indices.type, indices.type.count
    (bits, every), scale = ((ir.IntType(1), 1), I32) if count == LANES else ((I32, -1), ir.IntType(8))
    mask = ir.Constant(ir.VectorType(bits, count), [every] * count)
    base = builder.inttoptr(address, ir.IntType(8).as_pointer())
    unset = ir.Constant(kind, [0] * count)
    return instruction(builder, name, kind, [unset, base, indices, mask, ir.Constant(scale, 4)])
