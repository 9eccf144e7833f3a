"""Latent attention before rotation: norms of latents, and queries, keys and values of heads put together."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.norm import normed
from specchat.engine.kernels.partial_sums import summed
from specchat.engine.kernels.workspace import padded


@triton.jit  # type: ignore[untyped-decorator]
def _norm_latent(
    partials: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    stride_split: tl.tensor,
    stride_row: tl.tensor,
    width: tl.tensor,
    eps: tl.tensor,
    SPLITS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    inside = column < width
    x = summed(partials + row * stride_row + column, inside, stride_split, SPLITS)
    x = normed(x, weight + column, inside, width, eps)
    tl.store(out + row * width + column, x.to(out.dtype.element_ty), mask=inside)


def norm_latent(partials: Tensor, norm: tuple[Tensor, float], out: Tensor, rows: int, skip: Tensor | None) -> None:
    """Write the RMS norm of a latent.

    Args:
        partials: float32 [splits, R, width], a part of a product's columns, added in index order.
        norm: weight, any float dtype [width], and eps.
        out: compute dtype [R, width], written.
        skip: int32 [1]; non-zero skips the kernel.
    """
    splits, _, width = partials.shape
    _norm_latent[(rows,)](
        partials, norm[0], out, skip, *partials.stride()[:2], width, norm[1],
        SPLITS=splits, COLUMNS=triton.next_power_of_2(width), num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _expand(
    queries: tl.tensor,
    shared: tl.tensor,
    parts: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    query_split: tl.tensor,
    query_row: tl.tensor,
    shared_split: tl.tensor,
    shared_row: tl.tensor,
    part_split: tl.tensor,
    part_row: tl.tensor,
    heads: tl.tensor,
    QUERY_SPLITS: tl.constexpr,
    SHARED_SPLITS: tl.constexpr,
    PART_SPLITS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    ROTATED: tl.constexpr,
    VALUE: tl.constexpr,
    INTERLEAVED: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    kind = tl.program_id(1) // heads
    head = tl.program_id(1) % heads
    d = tl.arange(0, PADDED)
    rotated = d < ROTATED
    plain = (d >= ROTATED) & (d < DIM)
    source = d
    if INTERLEAVED:
        source = tl.where(d < ROTATED // 2, 2 * d, 2 * (d - ROTATED // 2) + 1)
    PLAIN: tl.constexpr = DIM - ROTATED
    if kind == 0:
        place = tl.where(rotated, PLAIN + source, d - ROTATED)
        x = summed(queries + row * query_row + head * DIM + place, d < DIM, query_split, QUERY_SPLITS)
    elif kind == 1:
        x = summed(shared + row * shared_row + source, rotated, shared_split, SHARED_SPLITS)
        x += summed(parts + row * part_row + head * PLAIN + d - ROTATED, plain, part_split, PART_SPLITS)
    else:
        first = parts + row * part_row + heads * PLAIN + head * VALUE
        x = summed(first + d, d < VALUE, part_split, PART_SPLITS)
    tl.store(out + (row * 3 * heads + tl.program_id(1)) * DIM + d, x, mask=d < DIM)


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
    _expand[(rows, 3 * heads)](
        queries, shared, parts, out, skip, *queries.stride()[:2], *shared.stride()[:2], *parts.stride()[:2], heads,
        QUERY_SPLITS=len(queries), SHARED_SPLITS=len(shared), PART_SPLITS=len(parts), DIM=dim, PADDED=padded(dim),
        ROTATED=rotated, VALUE=parts.shape[2] // heads - dim + rotated, INTERLEAVED=interleaved, num_warps=1,
        enable_fp_fusion=True,
    )  # fmt: skip


def reference_expand(queries: Tensor, shared: Tensor, parts: Tensor, heads: int, interleaved: bool) -> Tensor:
    """Output of `expand`, in the precision of its arguments: [R, 3 * heads * D]."""
    queries, shared, parts = (each.sum(0) for each in (queries, shared, parts))
    rotated = shared.shape[1]
    plain = (queries.shape[1] // heads) - rotated
    query = queries.unflatten(-1, (heads, -1))
    keys, values = (
        one.unflatten(-1, (heads, -1)) for one in parts.split([heads * plain, parts.shape[1] - heads * plain], -1)
    )

    def halved(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) if interleaved else x

    query = torch.cat([halved(query[..., plain:]), query[..., :plain]], -1)
    key = torch.cat([halved(shared)[:, None].expand(-1, heads, -1), keys], -1)
    value = torch.nn.functional.pad(values, (0, plain + rotated - values.shape[-1]))
    return torch.cat([one.flatten(1) for one in (query, key, value)], -1)
