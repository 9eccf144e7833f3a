"""A tile of weights as the tensor cores take it, from each format; exactly as bitsandbytes dequantises."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def four_bit(
    packed: tl.tensor,
    scales: tl.tensor,
    nested_code: tl.tensor,
    nested_absmax: tl.tensor,
    nested_offset: tl.tensor,
    table: tl.tensor,
    n: tl.tensor,
    k: tl.tensor,
    outputs: tl.tensor,
    inputs: tl.tensor,
    BN: tl.constexpr,
    BK: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
    TYPE: tl.constexpr,
) -> tl.tensor:
    """TYPE [BN, BK]: code[nibble] * scale, a float32 product rounded once; zero beyond the matrix.

    `n` int32 [BN] are outputs, `k` the first input, a multiple of BLOCK; `table` float32 [16].
    """
    half = k // 2 + tl.arange(0, BK // 2)
    block = k // BLOCK + tl.arange(0, BK // BLOCK)
    where = n[:, None] * (inputs // BLOCK) + block[None, :]
    if WHOLE:
        # Rows start at whole blocks of BK, which the compiler cannot know: told, it copies 16 bytes at a time.
        width = tl.multiple_of(inputs // 2, BK // 2)
        pairs = tl.load(packed + n[:, None] * width + half[None, :], eviction_policy="evict_first")
        scale = _scales(scales, n, k, inputs, where, BK, BLOCK)
    else:
        place = n[:, None] * (inputs // 2) + half[None, :]
        there = (n < outputs)[:, None]
        pairs = tl.load(packed + place, mask=there & (half < inputs // 2)[None, :], other=0)
        scale = tl.load(scales + where, mask=there & (block < inputs // BLOCK)[None, :], other=0)
    if nested_code is not None:
        # Two roundings, as bitsandbytes makes them: the launch forbids to fuse them.
        group = where >> 8
        if WHOLE:
            absmax, offset = tl.load(nested_absmax + group), tl.load(nested_offset + n)
        else:
            absmax = tl.load(nested_absmax + group, mask=there & (block < inputs // BLOCK)[None, :], other=0.0)
            offset = tl.load(nested_offset + n, mask=n < outputs, other=0.0)
        scale = tl.load(nested_code + scale.to(tl.int32)) * absmax + offset[:, None]
        if not WHOLE:
            scale = tl.where(there & (block < inputs // BLOCK)[None, :], scale, 0.0)
    pairs = pairs.to(tl.int32)
    # The high nibble is the even input.
    nibbles = tl.reshape(tl.join(pairs >> 4, pairs & 15), (BN * BK,))
    values = tl.reshape(tl.gather(table, nibbles, 0), (BN, BK // BLOCK, BLOCK))
    return tl.reshape((values * scale[:, :, None]).to(TYPE), (BN, BK))


@triton.jit  # type: ignore[untyped-decorator]
def _scales(
    scales: tl.tensor, n: tl.tensor, k: tl.tensor, inputs: tl.tensor, where: tl.tensor,
    BK: tl.constexpr, BLOCK: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The scales [BN, BK / BLOCK] at `where`; those of one byte are loaded together, as one number a row.

    Loads of single bytes would let the compiler lay the whole tile out for them, and cost it `ldmatrix`.
    """
    count: tl.constexpr = BK // BLOCK
    if (scales.dtype.element_ty == tl.uint8) & (count > 1):
        together = scales.to(tl.pointer_type(tl.uint16 if count == 2 else tl.uint32))
        row = tl.load(together + n * (inputs // BK) + k // BK).to(tl.int32, bitcast=count > 2)
        found = ((row[:, None] >> (8 * tl.arange(0, count))[None, :]) & 255).to(tl.uint8)
    else:
        found = tl.load(scales + where)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def plain(
    weight: tl.tensor,
    n: tl.tensor,
    k: tl.tensor,
    outputs: tl.tensor,
    inputs: tl.tensor,
    BK: tl.constexpr,
    WHOLE: tl.constexpr,
    TYPE: tl.constexpr,
) -> tl.tensor:
    """TYPE [BN, BK] from int8 or float values: small integers are exact in any float type; zero beyond the matrix."""
    column = k + tl.arange(0, BK)
    place = n[:, None] * inputs + column[None, :]
    if WHOLE:
        values = tl.load(weight + place, eviction_policy="evict_first")
    else:
        values = tl.load(weight + place, mask=(n < outputs)[:, None] & (column < inputs)[None, :], other=0)
    return values.to(TYPE)
