"""Weights in blocks of 2 to 8 bits, exactly as `quantise.dequantised` gives them.

Numbers are brought to units of 8 bits, and those of a code to nibbles, in the order of `gpu_blocks.WordBlocks`. Parts
of words are joined and not shifted by a range: the compiler turns weights over to the tensor cores where they are
loaded only if all that they are made of are loaded tensors and constants.
"""

import triton
import triton.language as tl

from specchat.engine.formats import grids
from specchat.engine.kernels import unpack
from specchat.engine.kernels.stored import WeightTensors
from specchat.engine.kernels.unpack import coded, picked

SUPER_BLOCK = tl.constexpr(grids.SUPER_BLOCK)
WHOLE = tl.constexpr(1 << 23)
"""Its float32 has a whole number below 2^23 in its low bits."""


@triton.jit  # type: ignore[untyped-decorator]
def table(code: tl.tensor) -> tl.tuple:
    """Return the numbers of a code, or the float32 [1, 1, 1] from which whole numbers count.

    A load of a byte lets the compiler give a thread eight inputs at a time, as in `unpack.numbers`.
    """
    if code.dtype.element_ty == tl.float32:
        found = unpack.numbers(code)
    else:
        found = ((tl.load(code + tl.zeros((1, 1, 1), tl.int32)).to(tl.int32) + WHOLE).to(tl.float32),)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def blocks(
    weight: WeightTensors, table: tl.tuple, n: tl.tensor, k: tl.tensor, program: tl.constexpr, TYPE: tl.constexpr
) -> tl.tensor:
    """Return scale * value - minimum as TYPE [BN, BK], float32 rounded once; zero beyond the matrix."""
    BN: tl.constexpr = program.outputs
    BK: tl.constexpr = program.inputs
    BLOCK: tl.constexpr = program.form.block
    UNIT: tl.constexpr = 4 if program.form.coded else 8
    words = _plane(weight.planes.low, weight, n, k, program, program.form.low, 0, UNIT)
    if program.form.high > 0:
        words |= _plane(weight.planes.high, weight, n, k, program, program.form.high, program.form.low, UNIT)
    numbers = _of_blocks(weight, n, k, program)
    scale = numbers[0][:, :, None]
    if program.form.coded:
        w = coded(tl.reshape(words, (BN, BK // BLOCK, BLOCK // 8)), scale, None, weight.code, table, TYPE)
    else:
        words = tl.reshape(words, (BN, BK // BLOCK, BLOCK // 4))
        minimum = None if program.form.minimums == "none" else -numbers[1][:, :, None]
        first, second = (
            _value(words, 0, table[0], scale, minimum, TYPE),
            _value(words, 1, table[0], scale, minimum, TYPE),
        )
        third, fourth = (
            _value(words, 2, table[0], scale, minimum, TYPE),
            _value(words, 3, table[0], scale, minimum, TYPE),
        )
        w = tl.join(tl.join(first, third), tl.join(second, fourth))
    return tl.reshape(w, (BN, BK))


@triton.jit  # type: ignore[untyped-decorator]
def _value(
    words: tl.tensor, BYTE: tl.constexpr, origin: tl.tensor, scale: tl.tensor, minimum: tl.tensor, TYPE: tl.constexpr
) -> tl.tensor:
    """Return the weights of one byte of each word as TYPE; `minimum` is negative."""
    # The byte takes the place of the lowest one of the origin, which is a loaded number: a constant would be copied to
    # a register for each selector.
    number = picked(words, origin.to(tl.uint32, bitcast=True), 0x7650 + BYTE).to(tl.float32, bitcast=True) - origin
    if minimum is None:
        value = number * scale
    else:
        # The product is exact.
        value = tl.fma(number, tl.broadcast_to(scale, number.shape), tl.broadcast_to(minimum, number.shape))
    return value.to(TYPE)


@triton.jit  # type: ignore[untyped-decorator]
def _plane(
    plane: tl.tensor,
    weight: WeightTensors,
    n: tl.tensor,
    k: tl.tensor,
    program: tl.constexpr,
    BITS: tl.constexpr,
    AT: tl.constexpr,
    UNIT: tl.constexpr,
) -> tl.tensor:
    """Return units with the numbers of a plane from bit AT on: uint32 [BN, BK * UNIT / 32]."""
    EACH: tl.constexpr = 32 // BITS
    words = loaded(plane, weight, n, k, program, tl.uint32, EACH)
    return tl.reshape(apart(words, BITS, AT, UNIT), (program.outputs, program.inputs * UNIT // 32))


@triton.jit  # type: ignore[untyped-decorator]
def loaded(
    plane: tl.tensor,
    weight: WeightTensors,
    n: tl.tensor,
    k: tl.tensor,
    program: tl.constexpr,
    TYPE: tl.constexpr,
    EACH: tl.constexpr,
) -> tl.tensor:
    """Return elements TYPE of a plane, one for EACH inputs, as uint32 [BN, BK / EACH]."""
    COUNT: tl.constexpr = program.inputs // EACH
    at = k // EACH + tl.arange(0, COUNT)
    # Rows start at whole blocks, or at whole passes of BK. With this hint the compiler copies 16 bytes at a time.
    width = tl.multiple_of(weight.inputs // EACH, COUNT if program.whole else 1)
    where = plane.to(tl.pointer_type(TYPE)) + n[:, None] * width + at[None, :]
    if program.whole:
        found = tl.load(where, eviction_policy="evict_first")
    else:
        there = (n < weight.outputs)[:, None] & (at < width)[None, :]
        found = tl.load(where, mask=there, other=0, eviction_policy="evict_first")
    return found.to(tl.uint32)


@triton.jit  # type: ignore[untyped-decorator]
def parts(words: tl.tensor, WIDTH: tl.constexpr, BITS: tl.constexpr, SHAPE: tl.constexpr) -> tl.tensor:
    """Return the numbers of BITS bits of words of WIDTH bits, the lowest first, as SHAPE."""
    for level in tl.static_range(5):
        if (16 >> level) < WIDTH and (16 >> level) >= BITS:
            words = tl.join(words, words >> (16 >> level))
    return tl.reshape(words, SHAPE) & ((1 << BITS) - 1)


@triton.jit  # type: ignore[untyped-decorator]
def apart(words: tl.tensor, BITS: tl.constexpr, AT: tl.constexpr, UNIT: tl.constexpr) -> tl.tensor:
    """Return the parts of BITS bits of all units, one after another, from bit AT of their units on."""
    MASK: tl.constexpr = (0xFFFFFFFF // ((1 << UNIT) - 1) * ((1 << BITS) - 1)) << AT
    if BITS == UNIT:
        found = words
    elif 2 * BITS == UNIT:
        found = _two(words, AT, BITS, MASK)
    elif 4 * BITS == UNIT:
        found = tl.join(_two(words, AT, 2 * BITS, MASK), _two(words, AT - BITS, 2 * BITS, MASK))
    else:
        even = tl.join(_two(words, AT, 4 * BITS, MASK), _two(words, AT - 2 * BITS, 4 * BITS, MASK))
        odd = tl.join(_two(words, AT - BITS, 4 * BITS, MASK), _two(words, AT - 3 * BITS, 4 * BITS, MASK))
        found = tl.join(even, odd)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _two(words: tl.tensor, LEFT: tl.constexpr, APART: tl.constexpr, MASK: tl.constexpr) -> tl.tensor:
    return tl.join(_moved(words, LEFT) & MASK, _moved(words, LEFT - APART) & MASK)


@triton.jit  # type: ignore[untyped-decorator]
def _moved(words: tl.tensor, LEFT: tl.constexpr) -> tl.tensor:
    return words << LEFT if LEFT > 0 else words >> -LEFT


@triton.jit  # type: ignore[untyped-decorator]
def _of_blocks(weight: WeightTensors, n: tl.tensor, k: tl.tensor, program: tl.constexpr) -> tl.tuple:
    """Return the scales of the blocks of inputs k .. k + BK - 1, and the minimums if any, float32 [BN, BK / BLOCK]."""
    if weight.factors.supers is None:
        found = (_halves(weight.factors.scales, weight, n, k, program),)
        if program.form.minimums == "halves":
            found += (_halves(weight.factors.minimums, weight, n, k, program),)  # type: ignore[assignment]
    else:
        numbers = _bytes(weight.factors.scales, weight, n, k, program)
        supers = supers_of(weight.factors.supers, weight, n, k, program)
        found = (numbers[0] * supers[0],)
        if program.form.minimums != "none":
            found += (numbers[1] * supers[1],)  # type: ignore[assignment]
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _bytes(octets: tl.tensor, weight: WeightTensors, n: tl.tensor, k: tl.tensor, program: tl.constexpr) -> tl.tuple:
    """Return whole numbers of blocks, float32 [BN, BK / BLOCK]: scales, and minimums if any."""
    COUNT: tl.constexpr = program.inputs // program.form.block
    EACH: tl.constexpr = 2 if program.form.minimums == "bytes" else 4
    word = k // (EACH * program.form.block) + tl.arange(0, COUNT // EACH)
    width = weight.inputs // (EACH * program.form.block)
    where = octets.to(tl.pointer_type(tl.uint32)) + n[:, None] * width + word[None, :]
    if program.whole:
        words = tl.load(where)
    else:
        words = tl.load(where, mask=(n < weight.outputs)[:, None] & (word < width)[None, :], other=0)
    if program.form.minimums == "bytes":
        scale = tl.reshape(_two(words, 0, 8, 255), (program.outputs, COUNT)).to(tl.float32)
        found = scale, tl.reshape(_two(words, -16, 8, 255), (program.outputs, COUNT)).to(tl.float32)
    else:
        numbers = tl.reshape(tl.join(_two(words, 0, 16, 255), _two(words, -8, 16, 255)), (program.outputs, COUNT))
        if program.form.minimums == "nibbles":
            found = (numbers & 15).to(tl.float32), (numbers >> 4).to(tl.float32)
        elif octets.dtype.element_ty == tl.int8:
            found = (numbers.to(tl.int8).to(tl.float32),)  # type: ignore[assignment]
        else:
            found = (numbers.to(tl.float32),)  # type: ignore[assignment]
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _halves(halves: tl.tensor, weight: WeightTensors, n: tl.tensor, k: tl.tensor, program: tl.constexpr) -> tl.tensor:
    """Return float16 of blocks as float32; loaded as words, which can be copied ahead to shared memory."""
    COUNT: tl.constexpr = program.inputs // program.form.block
    width = weight.inputs // program.form.block
    first = n * width + k // program.form.block
    if program.whole and COUNT > 1:
        words = halves.to(tl.pointer_type(tl.uint32)) + (first // 2)[:, None] + tl.arange(0, COUNT // 2)[None, :]
        found = tl.reshape(_two(tl.load(words), 0, 16, 0xFFFF), (program.outputs, COUNT))
    else:
        block = tl.arange(0, COUNT)
        there = (n < weight.outputs)[:, None] & (k // program.form.block + block < width)[None, :]
        where = halves.to(tl.pointer_type(tl.uint16)) + first[:, None] + block[None, :]
        found = tl.load(where, mask=there, other=0)
    return _from_half(found)


@triton.jit  # type: ignore[untyped-decorator]
def supers_of(supers: tl.tensor, weight: WeightTensors, n: tl.tensor, k: tl.tensor, program: tl.constexpr) -> tl.tuple:
    """Return the factors of scales, and of minimums if any: float32 [BN, BK / BLOCK], [BN, 1] of one super-block."""
    COUNT: tl.constexpr = program.inputs // SUPER_BLOCK
    width = weight.inputs // SUPER_BLOCK
    at = k // SUPER_BLOCK
    row = n
    there = None if program.whole else (n < weight.outputs) & (k < weight.inputs)
    if COUNT > 1:
        row, at = n[:, None], (at + tl.arange(0, COUNT))[None, :]
        there = None if program.whole else (row < weight.outputs) & (at < width)
    other = None if program.whole else 0
    where = row * width + at
    if program.form.minimums == "none" and supers.dtype.element_ty == tl.float32:
        found = (_of_each(tl.load(supers + where, mask=there, other=other), COUNT, program),)
    elif program.form.minimums == "none" and program.whole:
        # Of words, which can be copied ahead to shared memory. All numbers make whole ones.
        halves = tl.load(supers.to(tl.pointer_type(tl.uint32)) + (where >> 1)) >> (16 * (where & 1)).to(tl.uint32)
        found = (_from_half(_of_each(halves, COUNT, program)),)
    elif program.form.minimums == "none":
        halves = tl.load(supers.to(tl.pointer_type(tl.uint16)) + where, mask=there, other=other)
        found = (_from_half(_of_each(halves, COUNT, program)),)
    else:
        both = _of_each(tl.load(supers.to(tl.pointer_type(tl.uint32)) + where, mask=there, other=other), COUNT, program)
        found = _from_half(both & 0xFFFF), _from_half(both >> 16)  # type: ignore[assignment]
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _of_each(factors: tl.tensor, COUNT: tl.constexpr, program: tl.constexpr) -> tl.tensor:
    """Return what each block has of factors [BN, COUNT] of super-blocks, or [BN] of one."""
    if COUNT > 1:
        BLOCKS: tl.constexpr = SUPER_BLOCK // program.form.block
        spread = tl.broadcast_to(factors[:, :, None], (program.outputs, COUNT, BLOCKS))
        found = tl.reshape(spread, (program.outputs, COUNT * BLOCKS))
    else:
        found = factors[:, None]
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _from_half(bits: tl.tensor) -> tl.tensor:
    return bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
