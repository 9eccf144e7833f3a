"""Matrix products of the rows of a pass with dense or quantised weights: one kernel for any number of rows.

Weights are the first operand, and rows go through the tensor cores in padded tiles of 8, so one row takes the same
instructions in the same order as eight. More rows are more tiles against the same weights, and beyond 64 more programs.
"""

from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.layout import Weight, values_of
from specchat.engine.kernels import gpu_shapes, row_tiles, weight_tiles
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.gpu_shapes import (
    MATRIX,
    PASS_ROWS,
    PROMPT_ROWS,
    TILE_ROWS,
    Tiling,
    part_of,
    stages,
    tiling,
    widened,
)
from specchat.engine.kernels.processors import processors
from specchat.engine.kernels.stored import Form, StoredWeight, WeightTensors, bits_of, parts_of, stored


class ProductShape(NamedTuple):
    """Constants of a program.

    Attributes:
        form: of a `StoredWeight`.
        outputs, inputs: of a tile of weights, BN and BK.
        rows: of a tile of rows; there are `tiles` of them.
        span: inputs of a split.
        whole: true if no tile of weights goes beyond the matrix.
        activation: of gates, if any.
    """

    form: Form
    outputs: int
    inputs: int
    rows: int
    tiles: int
    span: int
    whole: bool
    activation: Activation | None


class ExpertTiles(NamedTuple):
    """Tiles of rows of experts: tensors of `route.Pairs`; `source` has the row of x of each row, None: the same."""

    used: Tensor
    experts: Tensor
    begins: Tensor
    ends: Tensor
    source: Tensor | None


class Omitted(NamedTuple):
    """Omissions of a launch: all where the number `skip` is not 0, and groups of rows after the row `last`."""

    skip: Tensor | None
    last: Tensor | None


class Sums(NamedTuple):
    """Partial sums that a launch writes, with elements from one to the next, and from a row to the next."""

    out: Tensor
    stride_split: int
    width: int


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _multiply(
    x: tl.tensor,
    omitted: Omitted,
    tiles: ExpertTiles | None,
    sums: Sums,
    rows: tl.tensor,
    groups: tl.tensor,
    weight: WeightTensors,
    program: tl.constexpr,
) -> None:
    if omitted.skip is not None:
        if tl.load(omitted.skip) != 0:
            return
    elif rows < 1:
        # Never so, but after a branch fewer registers of 64 rows are spilled on sm_120.
        return
    outputs, inputs = weight.outputs, weight.inputs
    # Groups of rows are neighbours, so that the second cache has the weights of one for the next.
    block, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    first_row = group * (program.rows * program.tiles)
    if omitted.last is not None:  # noqa: SIM102
        if first_row > tl.load(omitted.last):
            return
    out, source = sums.out, None
    if tiles is not None:
        at = tl.program_id(2)
        if at >= tl.load(tiles.used):
            return
        begin = tl.load(tiles.begins + at)
        rows = tl.load(tiles.ends + at) - begin
        weight = weight_tiles.of_expert(weight, tl.load(tiles.experts + at).to(tl.int64))
        out += begin * sums.width
        if tiles.source is None:
            x += begin * inputs
        else:
            source = tiles.source + begin
    BN: tl.constexpr = program.outputs
    ROWS: tl.constexpr = program.rows
    TILES: tl.constexpr = program.tiles
    n = _outputs(outputs, block, program)
    split = tl.program_id(1)
    row = first_row + tl.arange(0, ROWS)
    first = split * program.span
    acc = (tl.zeros((BN, ROWS), tl.float32),) * TILES
    table = weight_tiles.table(weight, program)
    origins = ()
    for tile in tl.static_range(TILES):
        origins += (row_tiles.origin(source, row, tile * ROWS, rows),)  # type: ignore[assignment]
    for k in range(first, tl.minimum(first + program.span, inputs), program.inputs):
        w = weight_tiles.tile(weight, table, n, k, program, x.dtype.element_ty)
        before = acc
        acc = ()
        for tile in tl.static_range(TILES):
            tile_x = x
            if source is None:
                tile_x += tile * ROWS * inputs
            some = row_tiles.load(tile_x, origins[tile], row + tile * ROWS, rows, weight, k, program)
            acc += (tl.dot(w, tl.trans(some), before[tile], input_precision="ieee"),)
    out += split * sums.stride_split
    factor = weight_tiles.factor(weight, n, program)
    offset = tl.zeros((BN,), tl.float32)
    if weight.bias is not None:  # noqa: SIM102
        if split == 0:
            offset = tl.load(weight.bias + n, mask=n < outputs, other=0.0).to(tl.float32)
    for tile in tl.static_range(TILES):
        y = acc[tile] * factor[:, None] + offset[:, None]
        if program.activation is None:
            row_tiles.store(out, y, row + tile * ROWS, n, rows, outputs, sums.width)
        else:
            row_tiles.store_activated(out, y, row + tile * ROWS, block, rows, outputs, program)


@triton.jit  # type: ignore[untyped-decorator]
def _outputs(outputs: tl.tensor, block: tl.tensor, program: tl.constexpr) -> tl.tensor:
    """Return the outputs of a block, int32 [BN]; one that there is not is `outputs` or more."""
    i = tl.arange(0, program.outputs)
    n = block * program.outputs + i
    if program.activation is not None:
        # Eight gates, then the eight values that they are for: one thread of `mma` has the sums of both.
        n = block * (program.outputs // 2) + i // 16 * 8 + i % 8
        # Beyond the last gate there is none, and no value.
        n = tl.where(n < outputs // 2, n + i // 8 % 2 * (outputs // 2), outputs)
    return n


def splits(weight: Weight) -> int:
    """Number of partial sums of `multiply` for `weight`, fixed by its shape, its format and its GPU."""
    return _tiling(weight).splits


def activates(weight: Weight) -> bool:
    """Return true if `multiply` applies the activation of gates itself, by shape, format and GPU."""
    bits, count = bits_of(weight), processors(values_of(weight).device)
    outputs, inputs = weight.shape
    return len(bits) == 1 and gpu_shapes.activates(outputs, inputs, bits[0], count)


def multiply(
    x: Tensor,
    weight: Weight,
    bias: Tensor | None,
    out: Tensor,
    rows: int,
    skip: Tensor | None = None,
    activation: Activation | None = None,
    last: Tensor | None = None,
) -> None:
    """Write out[s, r], the s-th partial sum of x[r] @ weight^T; their sum in index order is the product.

    With `activation` out[r] is activation(gate) * up instead: gate is the first half of the product, up the second.

    A 4-bit weight is float32((code - zero) * scale) rounded to the dtype of x, as bitsandbytes dequantises, and one in
    blocks float32(scale * value - minimum). An 8-bit one is exact, and its scale multiplies each partial sum. Parts of
    unlike storage have a launch each, and as many splits.

    Args:
        x: bfloat16, float16, or float32 (the interpreter's) [>= rows, inputs].
        bias: float [outputs], added to the first partial sum.
        out: float32 [splits(weight), >= rows, outputs], written; with `activation`, which `activates` must allow,
            compute dtype [>= rows, outputs / 2].
        rows: 1 to PROMPT_ROWS.
        skip: int32 [1]; non-zero skips the kernel.
        last: int32 [1], the last row that counts; groups of PASS_ROWS after it are left out.

    Raises:
        ModelError: the inputs are not a multiple of the weight's block, or the matrix has more than MATRIX values.
        ValueError: more than PROMPT_ROWS rows, or shapes that do not fit each other.
    """
    outputs, inputs = weight.shape
    cut = _tiling(weight)
    if activation is not None:
        cut = replace(cut, splits=1)
    if not 1 <= rows <= PROMPT_ROWS:
        raise ValueError(f"{rows} rows; a pass takes 1 to {PROMPT_ROWS}")
    if outputs * inputs > MATRIX:
        raise ModelError(
            f"a matrix of {outputs}x{inputs} has more values than the GPU kernels count: run the model on the CPU"
        )
    count, parts = processors(values_of(weight).device), parts_of(weight)
    tiles = RowTiles(min(rows, PASS_ROWS), triton.cdiv(rows, PASS_ROWS), last)
    ends = list(accumulate(part.shape[0] for part in parts))
    for part, bits, end in zip(parts, bits_of(weight), ends, strict=True):
        begin = end - part.shape[0]
        of_part = widened(part_of(cut, end - begin, inputs, bits), end - begin, bits, rows, count)
        into = out if len(parts) == 1 else out[..., begin:end]
        found = stored(part, None if bias is None else bias[begin:end])
        launch(x, found, into, rows, of_part, tiles, skip, activation)


class RowTiles(NamedTuple):
    """Tiles of rows of a launch: rows of a program, groups of so many, and the last row that counts; None: all do.

    Instead of groups there may be tiles of experts, with their greatest number.
    """

    rows: int
    groups: int = 1
    last: Tensor | None = None
    experts: ExpertTiles | None = None
    most: int = 1


def launch(
    x: Tensor,
    weight: StoredWeight,
    out: Tensor,
    rows: int,
    cut: Tiling,
    tiles: RowTiles,
    skip: Tensor | None = None,
    activation: Activation | None = None,
) -> None:
    """Launch the kernel for `multiply`, or for each of the `tiles` with the matrix of its expert."""
    tensors, form = weight
    outputs, inputs = tensors.outputs, tensors.inputs
    expected = (cut.splits, outputs) if activation is None else (outputs // 2,)
    if x.shape[1] != inputs or (*out.shape[:-2], out.shape[-1]) != expected:
        raise ValueError(f"{list(x.shape)} by {outputs}x{inputs} does not fit {cut.splits} splits in {list(out.shape)}")
    span = triton.cdiv(triton.cdiv(inputs, cut.inputs), cut.splits) * cut.inputs
    # A program with an activation takes half a block of gates, and as many values.
    whole = outputs % cut.outputs == 0 and inputs % cut.inputs == 0
    count = triton.next_power_of_2(triton.cdiv(tiles.rows, TILE_ROWS))
    _multiply[(triton.cdiv(outputs, cut.outputs) * tiles.groups, cut.splits, tiles.most)](
        x,
        Omitted(skip, tiles.last),
        tiles.experts,
        # Of one split there is no next.
        Sums(out, out.stride(0) if activation is None else 0, out.stride(-2)),
        rows,
        tiles.groups,
        tensors,
        ProductShape(form, cut.outputs, cut.inputs, TILE_ROWS, count, span, whole, activation),
        num_warps=cut.warps,
        num_stages=stages(count, chained=tensors.factors.nested is not None and whole),
        enable_fp_fusion=False,
    )


def _tiling(weight: Weight) -> Tiling:
    outputs, inputs = weight.shape
    return tiling(outputs, inputs, max(bits_of(weight)), processors(values_of(weight).device))
