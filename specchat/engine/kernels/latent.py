"""Latent attention before rotation: norms of latents, and queries, keys and values of heads put together."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.norm import NormOf, normed
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed
from specchat.engine.kernels.workspace import padded


@triton.jit  # type: ignore[untyped-decorator]
def _norm_latent(
    partials: PartialSums, norm: NormOf, out: tl.tensor, skip: tl.tensor, width: tl.tensor, COLUMNS: tl.constexpr
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    inside = column < width
    x = normed(summed(partials.first + row * partials.row + column, inside, partials), norm, column, inside, width)
    tl.store(out + row * width + column, x.to(out.dtype.element_ty), mask=inside)


def norm_latent(partials: Tensor, norm: tuple[Tensor, float], out: Tensor, rows: int, skip: Tensor | None) -> None:
    """Write the RMS norm of a latent.

    Args:
        partials: float32 [splits, R, width], a part of a product's columns, added in index order.
        norm: weight, any float dtype [width], and eps.
        out: compute dtype [R, width], written.
        skip: int32 [1]; non-zero skips the kernel.
    """
    width = partials.shape[2]
    _norm_latent[(rows,)](
        partial_sums(partials), NormOf(*norm), out, skip, width,
        COLUMNS=triton.next_power_of_2(width), num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip


class LatentShape(NamedTuple):
    """Constants of a program of `expand`: columns of a head, those rotated, those of a value; `interleaved` there."""

    dim: int
    padded: int
    rotated: int
    of_value: int
    interleaved: bool


@triton.jit  # type: ignore[untyped-decorator]
def _expand(
    queries: PartialSums,
    shared: PartialSums,
    parts: PartialSums,
    out: tl.tensor,
    skip: tl.tensor,
    heads: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    kind = tl.program_id(1) // heads
    head = tl.program_id(1) % heads
    d = tl.arange(0, shape.padded)
    rotated = d < shape.rotated
    plain = (d >= shape.rotated) & (d < shape.dim)
    source = d
    if shape.interleaved:
        source = tl.where(d < shape.rotated // 2, 2 * d, 2 * (d - shape.rotated // 2) + 1)
    PLAIN: tl.constexpr = shape.dim - shape.rotated
    if kind == 0:
        column = tl.where(rotated, PLAIN + source, d - shape.rotated)
        x = summed(queries.first + row * queries.row + head * shape.dim + column, d < shape.dim, queries)
    elif kind == 1:
        x = summed(shared.first + row * shared.row + source, rotated, shared)
        x += summed(parts.first + row * parts.row + head * PLAIN + d - shape.rotated, plain, parts)
    else:
        first = parts.first + row * parts.row + heads * PLAIN + head * shape.of_value
        x = summed(first + d, d < shape.of_value, parts)
    tl.store(out + (row * 3 * heads + tl.program_id(1)) * shape.dim + d, x, mask=d < shape.dim)


def expand(
    queries: Tensor,
    shared: Tensor,
    parts: Tensor,
    out: Tensor,
    heads: int,
    rows: int,
    interleaved: bool,
    skip: Tensor | None,
) -> None:
    """Write queries, keys and values of heads, each beginning with its rotated part (`recipe.Latent`).

    Args:
        queries: float32 [splits, R, >= heads * D], partial sums; the rotated part of a head comes last.
        shared: float32 [splits, R, rotated], the rotated part of all keys.
        parts: float32 [splits, R, heads * (D - rotated) + heads * value], the other part of the keys, then values.
        out: float32 [1, R, 3 * heads * D], written; values are filled up with zeros.
        interleaved: values to rotate are neighbours' pairs, written as the first of all pairs, then the second.
        skip: int32 [1]; non-zero skips the kernel.
    """
    dim, rotated = out.shape[2] // (3 * heads), shared.shape[2]
    shape = LatentShape(dim, padded(dim), rotated, parts.shape[2] // heads - dim + rotated, interleaved)
    _expand[(rows, 3 * heads)](
        partial_sums(queries), partial_sums(shared), partial_sums(parts), out, skip, heads, shape,
        num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip
