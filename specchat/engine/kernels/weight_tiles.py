"""Tiles of weights for the tensor cores, from each storage form."""

import triton
import triton.language as tl

from specchat.engine.kernels import unpack_blocks, unpack_grids
from specchat.engine.kernels.stored import Factors, NestedScales, Planes, WeightTensors
from specchat.engine.kernels.unpack import four_bit, numbers


@triton.jit  # type: ignore[untyped-decorator]
def of_expert(weight: WeightTensors, expert: tl.tensor) -> WeightTensors:
    """Return the matrix of one expert, int64."""
    planes, factors, steps = weight.planes, weight.factors, weight.steps
    of_scales = expert * steps.scales
    nested = factors.nested
    if nested is not None:
        absmax = _after(nested.absmax, expert * (steps.scales >> 8))
        nested = NestedScales(nested.code, absmax, _after(nested.offset, expert * weight.outputs))
    return WeightTensors(
        Planes(
            planes.low + expert * steps.low,
            _after(planes.high, expert * steps.high),
            _after(planes.signs, expert * steps.signs),
        ),
        Factors(
            _after(factors.scales, of_scales),
            _after(factors.minimums, of_scales),
            _after(factors.supers, expert * steps.supers),
            nested,
            _after(factors.zeros, of_scales),
        ),
        weight.outputs,
        weight.inputs,
        steps,
        _after(weight.order, expert * weight.inputs),
        weight.code,
        weight.codebook,
        _after(weight.bias, expert * steps.bias),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _after(tensor: tl.tensor, elements: tl.tensor) -> tl.tensor:
    return None if tensor is None else tensor + elements


@triton.jit  # type: ignore[untyped-decorator]
def table(weight: WeightTensors, program: tl.constexpr) -> tl.tuple:
    """Return what `tile` takes that is the same for every tile of a program."""
    if program.form.name == "four_bit":
        found = numbers(weight.code)
    elif program.form.name == "blocks":
        found = unpack_blocks.table(weight.code)
    elif program.form.name == "grids":
        found = unpack_grids.table(weight.code)
    else:
        found = ()
    return found


@triton.jit  # type: ignore[untyped-decorator]
def tile(
    weight: WeightTensors, table: tl.tuple, n: tl.tensor, k: tl.tensor, program: tl.constexpr, TYPE: tl.constexpr
) -> tl.tensor:
    """Return a tile of weights TYPE [BN, BK], zero beyond the matrix, the inputs in the order of `row_tiles.load`.

    Args:
        n: outputs, int32 [BN].
        k: first input, a multiple of BK.
        program: constants, a `products.ProductShape`.
    """
    if program.form.block > 0:
        w = _by_threads(in_blocks(weight, table, n, k, program, TYPE), program)
    else:
        w = plain(weight, n, k, program, TYPE)
    return w


@triton.jit  # type: ignore[untyped-decorator]
def in_blocks(
    weight: WeightTensors, table: tl.tuple, n: tl.tensor, k: tl.tensor, program: tl.constexpr, TYPE: tl.constexpr
) -> tl.tensor:
    """Return a tile of weights in blocks as TYPE [BN, BK], the inputs in their order."""
    if program.form.name == "four_bit":
        w = four_bit(weight, table, n, k, program, TYPE)
    elif program.form.name == "blocks":
        w = unpack_blocks.blocks(weight, table, n, k, program, TYPE)
    else:
        w = unpack_grids.blocks(weight, table, n, k, program, TYPE)
    return w


@triton.jit  # type: ignore[untyped-decorator]
def factor(weight: WeightTensors, n: tl.tensor, program: tl.constexpr) -> tl.tensor:
    """Return the factor on sums of outputs `n`, float32: their scale where a row has one."""
    found = tl.full(n.shape, 1.0, tl.float32)
    if program.form.name == "eight_bit":
        found = tl.load(weight.factors.scales + n, mask=n < weight.outputs, other=0.0)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _by_threads(w: tl.tensor, program: tl.constexpr) -> tl.tensor:
    """Return weights [BN, BK] with columns in another order: column (s, t, i) is input (t, s, i), t < 4 and i < 8.

    Of 32 columns s, thread t of a row's four has columns 8 t + i as its part of operands of `mma`. So it has BK / 4
    consecutive inputs, unpacks them itself, by few scales, and no weight goes through shared memory.
    """
    w = tl.permute(tl.reshape(w, (program.outputs, 4, program.inputs // 32, 8)), (0, 2, 1, 3))
    return tl.reshape(w, (program.outputs, program.inputs))


@triton.jit  # type: ignore[untyped-decorator]
def plain(weight: WeightTensors, n: tl.tensor, k: tl.tensor, program: tl.constexpr, TYPE: tl.constexpr) -> tl.tensor:
    """Return int8 or float values as TYPE [BN, BK], where small integers are exact; zero beyond the matrix."""
    column = k + tl.arange(0, program.inputs)
    where = weight.planes.low + (n[:, None] * weight.inputs + column[None, :])
    if program.whole:
        found = tl.load(where, eviction_policy="evict_first")
    else:
        inside = (n < weight.outputs)[:, None] & (column < weight.inputs)[None, :]
        found = tl.load(where, mask=inside, other=0)
    return found.to(TYPE)
