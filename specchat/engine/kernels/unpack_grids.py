"""Weights by a codebook, exactly as `quantise.dequantised` gives them (`gpu_blocks.GridWords`).

Rows of the codebook come from memory, which the first cache has. The numbers of a row select bytes of a block's few
products by `prmt`, as they are, and signs are put on the bytes that have them.
"""

import triton
import triton.language as tl

from specchat.engine.formats import grids, words
from specchat.engine.kernels.stored import WeightTensors
from specchat.engine.kernels.unpack import INTERPRETED, even_bytes, from_bytes, odd_bytes, pair, picked
from specchat.engine.kernels.unpack_blocks import apart, loaded, parts, supers_of

IMPLIED = tl.constexpr(0xAA000000)
"""The bits of eighth signs in a word of signs, which are something else where they follow from the others."""
SUPER_BLOCK = tl.constexpr(grids.SUPER_BLOCK)
SHIFTS_AT, ROWS_AT = tl.constexpr(words.SHIFTS_AT), tl.constexpr(words.ROWS_AT)
FOURS = tl.constexpr(4)
"""Weights whose signs lie in the highest bits of the bytes of a word."""


@triton.jit  # type: ignore[untyped-decorator]
def table(code: tl.tensor) -> tl.tuple:
    """Return the eight magnitudes of a code, each float32 [1, 1, 1] as in `unpack.numbers`."""
    first = code + tl.zeros((1, 1, 1), tl.int32)
    return (
        from_bytes(first), tl.load(first + 1), tl.load(first + 2), tl.load(first + 3),
        tl.load(first + 4), tl.load(first + 5), tl.load(first + 6), tl.load(first + 7),
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def blocks(
    weight: WeightTensors, table: tl.tuple, n: tl.tensor, k: tl.tensor, program: tl.constexpr, TYPE: tl.constexpr
) -> tl.tensor:
    """Return magnitude * scale with its sign as TYPE [BN, BK], float32 rounded once; zero beyond the matrix."""
    BN: tl.constexpr = program.outputs
    BK: tl.constexpr = program.inputs
    BLOCK: tl.constexpr = program.form.block
    OF_ROWS: tl.constexpr = (BN, BK // program.form.values)
    SHAPE: tl.constexpr = (BN, BK // BLOCK, BLOCK // FOURS)
    low = loaded(weight.planes.low, weight, n, k, program, tl.uint32, 4 * program.form.values)
    signs = loaded(weight.planes.signs, weight, n, k, program, tl.uint32, 32)
    rows = parts(low, 32, 8, OF_ROWS)
    if program.form.high > 0:
        rows |= (
            parts(loaded(weight.planes.high, weight, n, k, program, tl.uint16, 64), 16, program.form.high, OF_ROWS) << 8
        )
    elif program.form.spare == "rows":
        ninth = tl.join(tl.join(signs >> 17, signs >> 21), tl.join(signs >> 19, signs >> 23))
        rows |= tl.reshape(ninth, OF_ROWS) & 256
    numbers = _looked_up(weight.codebook, rows, program)
    if program.form.values > FOURS:
        numbers = tl.join(numbers, numbers >> 16)
    if program.form.spare == "scales":
        # Joined, and not broadcast: the compiler loads a word in one layout, and signs are joined.
        scale = tl.join(_scale(signs), _scale(signs))
        scale = tl.join(scale, scale)
        scale = tl.reshape(tl.join(scale, scale), SHAPE)
    else:
        scale = _scales(weight, weight.codebook, n, k, program)
        scale = scale[:, :, None]
    factor = (2 * scale + 1).to(tl.float32) * supers_of(weight.factors.supers, weight, n, k, program)[0][:, :, None]
    if program.form.spare != "signs":
        signs = _implied(signs)
    signs = tl.reshape(apart(signs, 1, 7, 8), SHAPE)
    numbers = tl.reshape(numbers, SHAPE)
    if TYPE == tl.float32:  # noqa: SIM300
        values = _by_address(numbers, signs, factor, weight.code)
    else:
        values = _by_bytes(numbers, signs, factor, table, program, TYPE)
    return tl.reshape(values, (BN, BK))


@triton.jit  # type: ignore[untyped-decorator]
def _scales(weight: WeightTensors, codebook: tl.tensor, n: tl.tensor, k: tl.tensor, program: tl.constexpr) -> tl.tensor:
    """Return numbers of four bits of blocks, uint32 [BN, BK / BLOCK]."""
    SHAPE: tl.constexpr = (program.outputs, program.inputs // program.form.block)
    if program.form.block == 16:
        found = parts(loaded(weight.factors.scales, weight, n, k, program, tl.uint16, 64), 16, 4, SHAPE)
    else:
        # A thread has two numbers of a word, and the shifts that bring them down are loaded numbers.
        shifts = tl.load(codebook.to(tl.pointer_type(tl.uint32)) + SHIFTS_AT + tl.arange(0, 8))
        eights = loaded(weight.factors.scales, weight, n, k, program, tl.uint32, SUPER_BLOCK)
        found = tl.reshape(eights[:, :, None] >> shifts[None, None, :], SHAPE) & 15
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _scale(signs: tl.tensor) -> tl.tensor:
    """Return the scale that the bits of eighth signs are, every other bit from the 25th on."""
    pairs = (signs >> 25) & 0x55
    fours = (pairs | (pairs >> 1)) & 0x33
    return (fours | (fours >> 2)) & 15


@triton.jit  # type: ignore[untyped-decorator]
def _implied(signs: tl.tensor) -> tl.tensor:
    """Return words of signs with eighth ones that make the number of negative weights of a group even."""
    signs &= 0xFFFFFFFF - IMPLIED
    folded = signs ^ (signs << 16)
    folded ^= folded << 8
    return signs | ((folded ^ (folded << 1)) & IMPLIED)


@triton.jit  # type: ignore[untyped-decorator]
def _looked_up(codebook: tl.tensor, rows: tl.tensor, program: tl.constexpr) -> tl.tensor:
    """Return rows of a codebook as uint32.

    A product loads their address: the compiler takes loaded numbers alone to the layout of the tensor cores, and would
    copy rows ahead to shared memory, where many meet in a bank. The codebook of an embedding may have moved to main
    memory since its address was noted.
    """
    if INTERPRETED or program.outputs == 1:
        found = tl.load(codebook.to(tl.pointer_type(tl.uint32)) + ROWS_AT + rows.to(tl.int32))
    else:
        base = tl.load(codebook + tl.zeros((1, 1), tl.int32))
        found = tl.inline_asm_elementwise(
            "ld.global.nc.b32 $0, [$1];", "=r,l", [base + rows.to(tl.int64) * 4], tl.uint32, True, 1
        )
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _by_address(numbers: tl.tensor, signs: tl.tensor, scale: tl.tensor, code: tl.tensor) -> tl.tensor:
    """Return code[number] * scale float32 [..., 4] of each of `numbers`: what `_by_bytes` rounds."""
    place = tl.arange(0, 4)
    magnitude = tl.load(code + ((numbers[:, :, :, None] >> (4 * place)) & 7).to(tl.int32)) * scale[:, :, :, None]
    sign = (signs[:, :, :, None] << (24 - 8 * place)) & 0x80000000
    return (magnitude.to(tl.uint32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _by_bytes(
    numbers: tl.tensor,
    signs: tl.tensor,
    scale: tl.tensor,
    table: tl.tuple,
    program: tl.constexpr,
    TYPE: tl.constexpr,
) -> tl.tensor:
    """Return code[number] * scale TYPE [..., 2, 2] of each of `numbers`: their low and high bytes are picked apart."""
    p0, p1 = pair(table[0], table[1], scale, None, TYPE), pair(table[2], table[3], scale, None, TYPE)
    p2, p3 = p0, p1
    if program.form.values == FOURS:
        p2, p3 = pair(table[4], table[5], scale, None, TYPE), pair(table[6], table[7], scale, None, TYPE)
    low = picked(even_bytes(p0, p1), even_bytes(p2, p3), numbers)
    high = picked(odd_bytes(p0, p1), odd_bytes(p2, p3), numbers) ^ signs
    pairs = tl.join(picked(low, high, 0x5140), picked(low, high, 0x7362))
    even, odd = (pairs & 0xFFFF).to(tl.uint16), (pairs >> 16).to(tl.uint16)
    return tl.join(even.to(TYPE, bitcast=True), odd.to(TYPE, bitcast=True))
