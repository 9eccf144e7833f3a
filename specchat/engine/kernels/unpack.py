"""4-bit weights by a code, exactly as bitsandbytes dequantises."""

import triton
import triton.language as tl
from triton import knobs

from specchat.engine.kernels.stored import WeightTensors

INTERPRETED = tl.constexpr(knobs.runtime.interpret)
"""True if kernels are interpreted, which rules out assembly."""


@triton.jit  # type: ignore[untyped-decorator]
def four_bit(
    weight: WeightTensors, table: tl.tuple, n: tl.tensor, k: tl.tensor, program: tl.constexpr, TYPE: tl.constexpr
) -> tl.tensor:
    """Return (code[nibble] - zero) * scale as TYPE [BN, BK], a float32 product rounded once; zero beyond the matrix.

    `zeros` int8 [outputs, inputs / BLOCK]; None: all are 0. `n` int32 [BN] are outputs, `k` the first input, a multiple
    of BK.
    """
    BN: tl.constexpr = program.outputs
    BK: tl.constexpr = program.inputs
    BLOCK: tl.constexpr = program.form.block
    outputs, inputs = weight.outputs, weight.inputs
    word = k // 8 + tl.arange(0, BK // 8)
    block = k // BLOCK + tl.arange(0, BK // BLOCK)
    where = n[:, None] * (inputs // BLOCK) + block[None, :]
    inside = (n < outputs)[:, None] & (block < inputs // BLOCK)[None, :]
    eights = weight.planes.low.to(tl.pointer_type(tl.uint32))
    # Rows start at whole blocks, or at whole passes of BK. With this hint the compiler copies 16 bytes at a time.
    width = tl.multiple_of(inputs // 8, (BK if program.whole else BLOCK) // 8)
    where_words = eights + n[:, None] * width + word[None, :]
    if program.whole:
        words = tl.load(where_words, eviction_policy="evict_first")
    else:
        there = (n < outputs)[:, None] & (word < width)[None, :]
        words = tl.load(where_words, mask=there, other=0, eviction_policy="evict_first")
    if program.whole and weight.factors.nested is not None:
        scale = _of_blocks(weight.factors.scales, weight, n, k, program)
    elif program.whole:
        scale = tl.load(weight.factors.scales + where)
    else:
        scale = tl.load(weight.factors.scales + where, mask=inside, other=0)
    if weight.factors.nested is not None:
        nested = weight.factors.nested
        # Two roundings, as in bitsandbytes: the launch disables fused multiply-add.
        if nested.absmax is None:
            scale = tl.load(nested.code + scale.to(tl.int32))
        else:
            if program.whole:
                absmax, offset = tl.load(nested.absmax + (where >> 8)), tl.load(nested.offset + n)
            else:
                absmax = tl.load(nested.absmax + (where >> 8), mask=inside, other=0.0)
                offset = tl.load(nested.offset + n, mask=n < outputs, other=0.0)
            scale = tl.load(nested.code + scale.to(tl.int32)) * absmax + offset[:, None]
        if not program.whole:
            scale = tl.where(inside, scale, 0.0)
    words = tl.reshape(words, (BN, BK // BLOCK, BLOCK // 8))
    scale = scale[:, :, None]
    if weight.factors.zeros is None:
        zero = None
    elif program.whole:
        zero = _of_blocks(weight.factors.zeros, weight, n, k, program).to(tl.int8).to(tl.float32)[:, :, None]
    else:
        zero = tl.load(weight.factors.zeros + where, mask=inside, other=0).to(tl.float32)[:, :, None]
    return tl.reshape(coded(words, scale, zero, weight.code, table, TYPE), (BN, BK))


@triton.jit  # type: ignore[untyped-decorator]
def coded(
    words: tl.tensor, scale: tl.tensor, zero: tl.tensor, code: tl.tensor, table: tl.tuple, TYPE: tl.constexpr
) -> tl.tensor:
    """Return (code[nibble] - zero) * scale as TYPE [..., 8] of each of the `words`, a float32 product rounded once."""
    if TYPE == tl.float32:  # noqa: SIM108, SIM300
        values = _by_address(words, scale, zero, code)
    else:
        values = _by_bytes(words, scale, zero, table, TYPE)
    return values


@triton.jit  # type: ignore[untyped-decorator]
def _of_blocks(
    octets: tl.tensor, weight: WeightTensors, n: tl.tensor, k: tl.tensor, program: tl.constexpr
) -> tl.tensor:
    """Return bytes of the blocks of inputs k .. k + BK - 1 as uint32 [BN, BK / BLOCK].

    They are loaded as words, which can be copied ahead to shared memory; single bytes cannot.
    """
    COUNT: tl.constexpr = program.inputs // program.form.block
    byte = n * (weight.inputs // program.form.block) + k // program.form.block
    fours = octets.to(tl.pointer_type(tl.uint32))
    if COUNT < 4:
        word = tl.load(fours + (byte >> 2)) >> (8 * (byte & 3)).to(tl.uint32)
        found = word[:, None] >> (8 * tl.arange(0, COUNT))[None, :]
    else:
        words = tl.load(fours + (byte >> 2)[:, None] + tl.arange(0, COUNT // 4)[None, :])
        found = tl.reshape(words[:, :, None] >> (8 * tl.arange(0, 4))[None, None, :], (program.outputs, COUNT))
    return found & 255


@triton.jit  # type: ignore[untyped-decorator]
def _by_address(words: tl.tensor, scale: tl.tensor, zero: tl.tensor, code: tl.tensor) -> tl.tensor:
    """Return (code[nibble] - zero) * scale float32 [..., 8] of each of the `words`: what `_by_bytes` rounds."""
    # The high nibble of a byte is the even input.
    place = 4 * (tl.arange(0, 8) ^ 1)
    numbers = tl.load(code + ((tl.expand_dims(words, 3) >> place) & 15).to(tl.int32))
    if zero is not None:
        numbers -= tl.expand_dims(zero, 3)
    return numbers * tl.expand_dims(scale, 3)


@triton.jit  # type: ignore[untyped-decorator]
def numbers(code: tl.tensor) -> tl.tuple:
    """The 16 float32 of a code table, each [1, 1, 1] in registers: a load within a loop is copied to shared memory.

    Tensors and not single numbers: the compiler turns weights over to the tensor cores where they are loaded only if
    all that they are made of are tensors. It gives a thread eight inputs at a time if one of these is loaded as bytes.
    """
    first = code + tl.zeros((1, 1, 1), tl.int32)
    return (
        from_bytes(first), tl.load(first + 1), tl.load(first + 2), tl.load(first + 3),
        tl.load(first + 4), tl.load(first + 5), tl.load(first + 6), tl.load(first + 7),
        tl.load(first + 8), tl.load(first + 9), tl.load(first + 10), tl.load(first + 11),
        tl.load(first + 12), tl.load(first + 13), tl.load(first + 14), tl.load(first + 15),
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def from_bytes(number: tl.tensor) -> tl.tensor:
    """Load float32, byte by byte."""
    byte = number.to(tl.pointer_type(tl.uint8))
    bits = tl.load(byte).to(tl.uint32)
    for i in tl.static_range(1, 4):
        bits |= tl.load(byte + i).to(tl.uint32) << (8 * i)
    return bits.to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _by_bytes(words: tl.tensor, scale: tl.tensor, zero: tl.tensor, table: tl.tuple, TYPE: tl.constexpr) -> tl.tensor:
    """Return (code[nibble] - zero) * scale TYPE [..., 8] of each of the `words`, without a table in memory.

    The 16 products of a block's scale, rounded, stay in eight registers: their low bytes in four, their high bytes in
    four. A nibble's three low bits pick a byte of two registers, its high bit one of the two picked.
    """
    p0, p1 = pair(table[0], table[1], scale, zero, TYPE), pair(table[2], table[3], scale, zero, TYPE)
    p2, p3 = pair(table[4], table[5], scale, zero, TYPE), pair(table[6], table[7], scale, zero, TYPE)
    p4, p5 = pair(table[8], table[9], scale, zero, TYPE), pair(table[10], table[11], scale, zero, TYPE)
    p6, p7 = pair(table[12], table[13], scale, zero, TYPE), pair(table[14], table[15], scale, zero, TYPE)
    low = even_bytes(p0, p1), even_bytes(p2, p3), even_bytes(p4, p5), even_bytes(p6, p7)
    high = odd_bytes(p0, p1), odd_bytes(p2, p3), odd_bytes(p4, p5), odd_bytes(p6, p7)
    three, fourth = words & 0x77777777, _selectors(words)
    a, b = _four(low, high, three, _right(fourth, 1))
    c, d = _four(low, high, _right(three, 16), _right(fourth, 17))
    pairs = tl.join(tl.join(a, c), tl.join(b, d))
    even, odd = (pairs & 0xFFFF).to(tl.uint16), (pairs >> 16).to(tl.uint16)
    return tl.join(even.to(TYPE, bitcast=True), odd.to(TYPE, bitcast=True))


@triton.jit  # type: ignore[untyped-decorator]
def _four(low: tl.tuple, high: tl.tuple, three: tl.tensor, fourth: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Return two pairs of values from the four lowest nibbles of a word, in the order of their inputs."""
    lows = picked(picked(low[0], low[1], three), picked(low[2], low[3], three), fourth)
    highs = picked(picked(high[0], high[1], three), picked(high[2], high[3], three), fourth)
    # The high nibble of a byte is the even input.
    return picked(lows, highs, 0x4051), picked(lows, highs, 0x6273)


@triton.jit  # type: ignore[untyped-decorator]
def _selectors(words: tl.tensor) -> tl.tensor:
    """Return the high bits of nibbles uint32, where they select bytes 0..3 or 4..7 by `picked` after a shift by one."""
    if INTERPRETED:
        return (words & 0x88888888) | 0x64206420
    return tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, 0xEA;", "=r,r,r,r", [words, 0x88888888, 0x64206420], tl.uint32, True, 1
    )


@triton.jit  # type: ignore[untyped-decorator]
def _right(x: tl.tensor, by: tl.constexpr) -> tl.tensor:
    """Return x >> by of uint32, as the high half of a product.

    Shifts share the pipe of integers with `prmt`, which is the busiest here; products have that of floats.
    """
    if INTERPRETED:
        return x >> by
    return tl.inline_asm_elementwise("mul.hi.u32 $0, $1, $2;", "=r,r,r", [x, 1 << (32 - by)], tl.uint32, True, 1)


@triton.jit  # type: ignore[untyped-decorator]
def even_bytes(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    return picked(low, high, 0x6420)


@triton.jit  # type: ignore[untyped-decorator]
def odd_bytes(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    return picked(low, high, 0x7531)


@triton.jit  # type: ignore[untyped-decorator]
def pair(low: tl.tensor, high: tl.tensor, scale: tl.tensor, zero: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """Pack the products of `low` in the low half and of `high` in the high half of uint32, each rounded to TYPE."""
    if zero is not None:
        low, high = low - zero, high - zero
    low, high = low * scale, high * scale
    if INTERPRETED:
        low, high = low.to(TYPE).to(tl.uint16, bitcast=True), high.to(TYPE).to(tl.uint16, bitcast=True)
        both = low.to(tl.uint32) | (high.to(tl.uint32) << 16)
    elif TYPE == tl.bfloat16:  # noqa: SIM300
        both = tl.inline_asm_elementwise("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], tl.uint32, True, 1)
    else:
        both = tl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], tl.uint32, True, 1)
    return both


@triton.jit  # type: ignore[untyped-decorator]
def picked(low: tl.tensor, high: tl.tensor, selector: tl.tensor) -> tl.tensor:
    """Pick four of the eight bytes of `low` and `high` as uint32, each by a nibble of `selector` from 0 to 7."""
    if INTERPRETED:
        both = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
        found = (both >> (8 * (selector & 7))) & 255
        for i in tl.static_range(1, 4):
            found |= ((both >> (8 * ((selector >> (4 * i)) & 7))) & 255) << (8 * i)
        found = found.to(tl.uint32)
    else:
        found = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [low, high, selector], tl.uint32, True, 1
        )
    return found
