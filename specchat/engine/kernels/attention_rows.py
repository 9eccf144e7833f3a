"""Attention of many rows in one launch: a program walks the text of its tile, and adds the splits as they end.

It does what the programs of `attention` and `combine` do of each row, in their order. So it has their bits, and memory
need not hold partial sums of many rows, but only as many programs as there are tiles run at a time.
"""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.attention_block import (
    TILE,
    AttentionShape,
    KeyBlock,
    Operands,
    ScoreSizes,
    Sight,
    add_keys,
    load_queries,
    of_kv_head,
    of_ring,
)
from specchat.engine.kernels.combine import Extras, before_all, folded, write_outputs
from specchat.engine.kernels.gpu_shapes import GROWS
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import no_sums, registers

_TILE = tl.constexpr(TILE)
_GROWS = tl.constexpr(GROWS)


@triton.jit(do_not_specialize=["rows", "window"])  # type: ignore[untyped-decorator]
def _attend_rows(
    operands: Operands,
    at: RowPlaces,
    extras: Extras,
    out: tl.tensor,
    rows: tl.tensor,
    sizes: ScoreSizes,
    window: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if at.skip is not None:  # noqa: SIM102
        if tl.load(at.skip) != 0:
            return
    tile, kv = tl.program_id(0), tl.program_id(1)
    start = tl.load(at.length)
    packed = tile * _TILE + tl.arange(0, _TILE)
    if at.last is not None:
        rows = tl.minimum(rows, tl.load(at.last) + 1)
        if tile * _TILE // shape.group >= rows:
            return
    token, member = packed // shape.group, packed % shape.group
    end = start + tl.minimum((tile * _TILE + _TILE - 1) // shape.group + 1, rows)
    end = tl.minimum(end, sizes.capacity)
    seen = start + token + 1
    first, since, lowest, span = 0, None, None, window
    if window is not None:
        since = seen - window
        lowest = tl.min(tl.where(token < rows, since, end), 0)
        first = tl.maximum(lowest, 0) // shape.keys * shape.keys
    if at.until is not None:
        whole = tl.load(at.until)
        seen, end = tl.maximum(seen, whole), tl.maximum(end, whole)
        if window is not None:
            span = (seen - since).to(tl.uint32)[:, None]
    used = token < rows
    head = kv * shape.group + member
    q = load_queries(operands, token, head, used, sizes, shape)
    operands = of_kv_head(operands, kv, sizes, shape)
    PADDED: tl.constexpr = shape.padded
    sums, of_split = before_all(head, extras, PADDED), no_sums(_TILE, PADDED)
    size = tl.zeros_like(end) + shape.split
    for block in range(first, end, shape.keys):
        position = block + tl.arange(0, shape.keys)
        slot, sight = of_ring(position, block, sizes), Sight(end, seen, since, lowest)
        of_split = add_keys(of_split, q, operands, KeyBlock(position, slot), sight, sizes, span, shape)
        after = block + shape.keys
        if (after % size == 0) | (after >= end):
            sums, of_split = folded(sums, of_split), no_sums(_TILE, PADDED)
            if window is None:
                size = tl.where(after == size * (2 * _GROWS), 2 * size, size)
    write_outputs(sums, token, head, used, extras, out, sizes.heads, shape)


def attend_rows(
    operands: Operands,
    at: RowPlaces,
    extras: Extras,
    out: Tensor,
    rows: int,
    sizes: ScoreSizes,
    window: int,
    shape: AttentionShape,
) -> None:
    """Compute `attention.attend` of a chain, without partial sums in memory."""
    kv_heads = operands.key.shape[0]
    _attend_rows[(triton.cdiv(rows * shape.group, TILE), kv_heads)](
        operands, at, extras, out, rows, sizes, window or None, shape,
        num_warps=4, num_stages=2, maxnreg=registers(shape.dim), enable_fp_fusion=True,
    )  # fmt: skip
