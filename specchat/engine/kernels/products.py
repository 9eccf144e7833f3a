"""Matrix products of up to 64 rows with dense or quantised weights: one kernel for any number of rows.

Weights are the first operand, and rows go through the tensor cores in padded tiles of 8, so one row takes the same
instructions in the same order as eight. More rows are more tiles against the same weights.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.layout import EightBit, FourBit, Nested, Weight, values_of
from specchat.engine.kernels import gpu_shapes, row_tiles, unpack
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.gpu_shapes import MATRIX, PASS_ROWS, TILE_ROWS, Tiling, stages, tiling, widened
from specchat.engine.kernels.processors import processors

TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _multiply(
    x: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    nested_code: tl.tensor,
    nested_absmax: tl.tensor,
    nested_offset: tl.tensor,
    zeros: tl.tensor,
    order: tl.tensor,
    code: tl.tensor,
    bias: tl.tensor,
    skip: tl.tensor,
    used: tl.tensor,
    experts: tl.tensor,
    begins: tl.tensor,
    ends: tl.tensor,
    source: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    inputs: tl.tensor,
    stride_split: tl.tensor,
    stride_weight: tl.tensor,
    stride_scales: tl.tensor,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    WHOLE: tl.constexpr,
    TYPE: tl.constexpr,
    ACTIVATION: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    if experts is not None:
        place = tl.program_id(2)
        if place >= tl.load(used):
            return
        expert = tl.load(experts + place).to(tl.int64)
        begin = tl.load(begins + place)
        rows = tl.load(ends + place) - begin
        weight += expert * stride_weight
        if BITS <= 8:
            scales += expert * stride_scales
        if nested_code is not None:
            nested_absmax += expert * (stride_scales >> 8)
            nested_offset += expert * outputs
        if zeros is not None:
            zeros += expert * stride_scales
        if bias is not None:
            bias += expert * outputs
        out += begin * (outputs if ACTIVATION is None else outputs // 2)
        if source is None:
            x += begin * inputs
        else:
            source += begin
    i = tl.arange(0, BN)
    n = tl.program_id(0) * BN + i
    if ACTIVATION is not None:
        # Eight gates, then the eight values that they are for: one thread of `mma` has the sums of both.
        n = tl.program_id(0) * (BN // 2) + i // 16 * 8 + i % 8
        # Beyond the last gate there is none, and no value.
        n = tl.where(n < outputs // 2, n + i // 8 % 2 * (outputs // 2), outputs)
    split = tl.program_id(1)
    row = tl.arange(0, ROWS)
    first = split * SPLIT
    last = tl.minimum(first + SPLIT, inputs)
    sums = (tl.zeros((BN, ROWS), tl.float32),) * TILES
    if BITS == 4:
        table = unpack.numbers(code)
    origins = ()
    for tile in tl.static_range(TILES):
        origins += (row_tiles.origin(source, tile * ROWS, rows, ROWS),)  # type: ignore[assignment]
    for k in range(first, last, BK):
        if BITS == 4:
            w = unpack.four_bit(
                weight, scales, nested_code, nested_absmax, nested_offset, zeros, code, table, n, k, outputs, inputs,
                BN, BK, BLOCK, WHOLE, TYPE,
            )  # fmt: skip
            w = unpack.by_threads(w, BN, BK)
        else:
            w = unpack.plain(weight, n, k, outputs, inputs, BK, WHOLE, TYPE)
        before = sums
        sums = ()
        for tile in tl.static_range(TILES):
            own = x
            if source is None:
                own += tile * ROWS * inputs
            some = row_tiles.load(own, origins[tile], row + tile * ROWS, rows, order, k, inputs, BK, WHOLE, BITS)
            sums += (tl.dot(w, tl.trans(some), before[tile], input_precision="ieee"),)
    out += split * stride_split
    factor = tl.full((BN,), 1.0, tl.float32)
    if BITS == 8:
        factor = tl.load(scales + n, mask=n < outputs, other=0.0)
    offset = tl.zeros((BN,), tl.float32)
    if bias is not None:  # noqa: SIM102
        if split == 0:
            offset = tl.load(bias + n, mask=n < outputs, other=0.0).to(tl.float32)
    for tile in tl.static_range(TILES):
        if ACTIVATION is None:
            row_tiles.store(out, sums[tile], factor, offset, row + tile * ROWS, n, rows, outputs)
        else:
            row_tiles.store_activated(
                out, sums[tile], factor, offset, row + tile * ROWS, rows, outputs, BN, ROWS, ACTIVATION
            )


def splits(weight: Weight) -> int:
    """Number of partial sums of `multiply` for `weight`, fixed by its shape, its format and its GPU."""
    return _tiling(weight).splits


def activates(weight: Weight) -> bool:
    """Return true if `multiply` applies the activation of gates itself, by shape, format and GPU."""
    outputs, inputs = weight.shape
    return gpu_shapes.activates(outputs, inputs, bits_of(weight), processors(values_of(weight).device))


def multiply(
    x: Tensor,
    weight: Weight,
    bias: Tensor | None,
    out: Tensor,
    rows: int,
    skip: Tensor | None = None,
    activation: Activation | None = None,
) -> None:
    """Write out[s, r], the s-th partial sum of x[r] @ weight^T; their sum in index order is the product.

    With `activation` out[r] is activation(gate) * up instead: gate is the first half of the product, up the second.

    A 4-bit weight is float32((code - zero) * scale) rounded to the dtype of x, as bitsandbytes dequantises. An 8-bit
    one is exact, and its scale multiplies each partial sum.

    Args:
        x: bfloat16, float16, or float32 (the interpreter's) [>= rows, inputs].
        bias: float [outputs], added to the first partial sum.
        out: float32 [splits(weight), >= rows, outputs], written; with `activation`, which `activates` must allow,
            compute dtype [>= rows, outputs / 2].
        rows: 1 to 64.
        skip: int32 [1]; non-zero skips the kernel.

    Raises:
        ModelError: the inputs are not a multiple of the weight's block, or the matrix has more than MATRIX values.
        ValueError: more than 64 rows, or shapes that do not fit each other.
    """
    outputs, inputs = weight.shape
    cut = _tiling(weight)
    if activation is not None:
        cut = replace(cut, splits=1)
    if not 1 <= rows <= PASS_ROWS:
        raise ValueError(f"{rows} rows; a pass takes 1 to {PASS_ROWS}")
    if outputs * inputs > MATRIX:
        raise ModelError(
            f"a matrix of {outputs}x{inputs} has more values than the GPU kernels count: run the model on the CPU"
        )
    cut = widened(cut, outputs, bits_of(weight), rows, processors(values_of(weight).device))
    launch(x, weight, bias, out, rows, skip, activation, cut, outputs, rows)


def launch(
    x: Tensor,
    weight: Weight,
    bias: Tensor | None,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    activation: Activation | None,
    cut: Tiling,
    outputs: int,
    tile: int,
    tiles: tuple[Tensor | None, ...] = (None,) * 5,
    most: int = 1,
) -> None:
    """Launch the kernel: `multiply`, or with `most` `tiles` of rows, for each a part of `outputs` rows of the weight.

    Args:
        tile: rows of a program.
        tiles: used, experts, begins and ends of `route.Pairs`, and the row of x of each row, None: the same.
    """
    inputs = weight.shape[1]
    expected = (cut.splits, outputs) if activation is None else (outputs // 2,)
    if x.shape[1] != inputs or (*out.shape[:-2], out.shape[-1]) != expected:
        raise ValueError(f"{list(x.shape)} by {outputs}x{inputs} does not fit {cut.splits} splits in {list(out.shape)}")
    span = triton.cdiv(triton.cdiv(inputs, cut.inputs), cut.splits) * cut.inputs
    values, scales, nested, code, block, bits = _parts(weight)
    # A program with an activation takes half a block of gates, and as many values.
    whole = outputs % cut.outputs == 0 and inputs % cut.inputs == 0
    count = triton.next_power_of_2(triton.cdiv(tile, TILE_ROWS))
    parts = 0 if tiles[0] is None else weight.shape[0] // outputs
    _multiply[(triton.cdiv(outputs, cut.outputs), cut.splits, most)](
        x,
        values,
        scales,
        nested and nested.code,
        nested and nested.absmax,
        nested and nested.offset,
        weight.zeros if isinstance(weight, FourBit) else None,
        weight.order if isinstance(weight, FourBit) else None,
        code,
        bias,
        skip,
        *tiles,
        out,
        rows,
        outputs,
        inputs,
        # Of one split there is no next.
        out.stride(0) if activation is None else 0,
        values.numel() // parts if parts else 0,
        scales.numel() // parts if parts and scales is not None else 0,
        BITS=bits,
        BLOCK=block,
        ROWS=TILE_ROWS,
        TILES=count,
        BN=cut.outputs,
        BK=cut.inputs,
        SPLIT=span,
        WHOLE=whole,
        TYPE=TYPES[x.dtype],
        ACTIVATION=activation,
        num_warps=cut.warps,
        num_stages=stages(count, chained=nested is not None and whole),
        enable_fp_fusion=False,
    )


def _parts(weight: Weight) -> tuple[Tensor, Tensor | None, Nested | None, Tensor | None, int, int]:
    """Values, scales, nested scales, code table, block, and bits a value."""
    match weight:
        case FourBit(packed, scales, code, block, nested):
            if weight.shape[1] % block:
                raise ModelError(
                    f"{weight.shape[1]} inputs are not a multiple of the 4-bit block of {block}: load the model "
                    "unquantised or with int8"
                )
            return packed, scales, nested, code, block, 4
        case EightBit(values, scales):
            return values, scales, None, None, 0, 8
        case _:
            return weight, None, None, None, 0, 8 * weight.element_size()


def bits_of(weight: Weight) -> int:
    """Bits a value."""
    return 4 if isinstance(weight, FourBit) else 8 if isinstance(weight, EightBit) else 8 * weight.element_size()


def _tiling(weight: Weight) -> Tiling:
    outputs, inputs = weight.shape
    return tiling(outputs, inputs, bits_of(weight), processors(values_of(weight).device))
