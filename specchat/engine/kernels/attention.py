"""Attention of a pass's rows over the cache: split-KV partials, then their combination; of many rows in one launch.

Flash-decoding (Dao et al. 2023) with a fixed split size. Query heads that share a key-value head are packed into the
rows of one tile (GQA: Ainslie et al. 2023). Draft tokens form chains or trees (SpecInfer: Miao et al. 2024).
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels import paths
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
from specchat.engine.kernels.attention_rows import attend_rows
from specchat.engine.kernels.combine import Extras, combine
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS, attention_splits
from specchat.engine.kernels.kv_entries import KvEntries, blocks_of
from specchat.engine.kernels.partial_sums import partial_sums
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import (
    Workspace,
    first_split,
    keys_at_once,
    no_sums,
    of_split,
    padded,
    registers,
    split_at,
)


class Scoring(NamedTuple):
    """How rows attend.

    Attributes:
        scale: factor on the scores, D ** -0.5 if None.
        window: KV entries that a row attends to at most, the last of its path; 0: all.
        cap: scaled scores x are cap * tanh(x / cap) (Gemma team 2024); 0: as they are.
        sinks: float32 [heads], the score of a value of zeros beside the others, scaled already (Xiao et al. 2023).
        gates: float32 [splits, R, columns], added in index order; a row begins with a query and a gate of D values for
            each head. The sigmoid of the gate multiplies the head's output (Qiu et al. 2025).
        positions: of the longest text, where KV entries are a ring of fewer.
    """

    scale: float | None = None
    window: int = 0
    cap: float = 0.0
    sinks: Tensor | None = None
    gates: Tensor | None = None
    positions: int | None = None


PLAIN = Scoring()
"""All positions alike."""
LOG2_E = math.log2(math.e)
_TILE = tl.constexpr(TILE)


@triton.jit(do_not_specialize=["rows", "shared_tiles", "window"])  # type: ignore[untyped-decorator]
def _partial(
    operands: Operands,
    at: RowPlaces,
    sums: Workspace,
    rows: tl.tensor,
    shared_tiles: tl.tensor,
    sizes: ScoreSizes,
    window: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if at.skip is not None:  # noqa: SIM102
        if tl.load(at.skip) != 0:
            return
    program, kv = tl.program_id(0), tl.program_id(1)
    start = tl.load(at.length)
    if at.tree is not None:
        program -= 2 * rows
    stored = first_split(start, window, shape.split)
    tile, split = program % shared_tiles, stored + program // shared_tiles
    packed = tile * _TILE + tl.arange(0, _TILE)
    token, member = packed // shape.group, packed % shape.group
    nodes = None
    if at.tree is None:
        end = start + tl.minimum((tile * _TILE + _TILE - 1) // shape.group + 1, rows)
        seen = start + token + 1
    else:
        # Rows share tiles for the keys before the draft tokens. In the two splits that can hold draft tokens, each
        # token has its own tile, which gathers the keys of its path into the positions of a chain.
        alone = program < 0
        row = tl.program_id(0) // 2
        whole = split_at(start, window, shape.split)
        if (split >= whole) & (program >= 0):
            return
        depth, nodes = paths.unpacked(tl.load(at.tree + row, mask=alone, other=0))
        split = tl.where(alone, whole + tl.program_id(0) % 2, split)
        token = tl.where(alone, row, token)
        member = tl.where(alone, tl.arange(0, _TILE), member)
        end = start + depth
        seen = end + tl.zeros_like(token)
    end = tl.minimum(end, sizes.capacity)
    first, size = of_split(split, window, shape.split)
    if first >= end:
        return
    since, lowest = None, None
    if window is not None:
        since = seen - window
        if at.tree is not None:
            since += tl.where(alone, 0, paths.depths(at.tree + token, token < rows))
        lowest = tl.min(tl.where(token < rows, since, end), 0)
        if tl.minimum(first + size, end) <= lowest:
            return
    used = (token < rows) & (member < shape.group)
    head = kv * shape.group + member
    q = load_queries(operands, token, head, used, sizes, shape)
    operands = of_kv_head(operands, kv, sizes, shape)
    PADDED: tl.constexpr = shape.padded
    found = no_sums(_TILE, PADDED)
    for block in range(first, tl.minimum(first + size, end), shape.keys):
        position = block + tl.arange(0, shape.keys)
        slot = position
        if nodes is not None:
            drafted = tl.gather(nodes, tl.minimum(tl.maximum(position - start, 0), 63), 0)
            slot = tl.minimum(tl.where(position < start, position, start + drafted), sizes.capacity - 1)
        slot, sight = of_ring(slot, first, sizes), Sight(end, seen, since, lowest)
        found = add_keys(found, q, operands, KeyBlock(position, slot), sight, sizes, window, shape)
    of_sums = (split - stored) * sizes.stride_split + token * sizes.heads + head
    tl.store(sums.best + of_sums, found.best, mask=used)
    tl.store(sums.total + of_sums, found.total, mask=used)
    # Values of long texts are more numbers than 32 bits count.
    of_mixed = sums.mixed + of_sums.to(tl.int64)[:, None] * shape.dim
    d = tl.arange(0, PADDED)
    tl.store(of_mixed + d[None, :], found.mixed, mask=used[:, None] & (d[None, :] < shape.dim))


def attend(
    query: Tensor,
    entries: KvEntries,
    at: RowPlaces,
    workspace: Workspace,
    out: Tensor,
    rows: int,
    of: Scoring = PLAIN,
) -> None:
    """Compute attention of a chain or a tree of rows, softmax in float32.

    A row of a tree has bit for bit the result of a chain along its path: the path's keys are summed by depth, wherever
    they lie.

    Args:
        query: compute dtype [R, heads, D], rotated.
        entries: row r's own is KV entry length + r.
        at: `last` is of a chain of more than VERIFY_ROWS.
        out: compute dtype [R, heads * value], written: the first `value` numbers of each head's D.
        rows: 1 to R, at most 64 of a tree.

    Raises:
        ModelError: more than TILE query heads share a key-value head.
    """
    kv_heads, held, dim = entries.keys.shape
    scale, cap, window = dim**-0.5 if of.scale is None else of.scale, of.cap, of.window
    capacity = held if of.positions is None else of.positions
    heads = query.shape[1]
    group = heads // kv_heads
    if group > TILE:
        raise ModelError(
            f"{group} query heads share a key-value head; the GPU kernels take {TILE} at most: run the model on the CPU"
        )
    factor, limit = (scale / cap, cap * LOG2_E) if cap else (scale * LOG2_E, None)
    operands = Operands(query, *entries)
    ring = None if held == capacity else held
    sizes = ScoreSizes(heads, capacity, workspace.best.stride(0), factor, limit, ring)
    blocks, written = blocks_of(dim, entries.scales), out.shape[1] // heads
    shape = AttentionShape(group, dim, written, padded(dim), keys_at_once(dim), workspace.split, blocks)
    extras = Extras(of.sinks, None if of.gates is None else partial_sums(of.gates))
    if at.tree is None and rows > VERIFY_ROWS:
        attend_rows(operands, at, extras, out, rows, sizes, window, shape)
        return
    splits, tiles = attention_splits(capacity, window, rows, workspace.split), triton.cdiv(rows * group, TILE)
    _partial[(tiles * splits + (0 if at.tree is None else 2 * rows), kv_heads)](
        operands, at, workspace, rows, tiles, sizes, window or None, shape,
        num_warps=4, num_stages=2, maxnreg=registers(dim), enable_fp_fusion=True,
    )  # fmt: skip
    combine(workspace, at, out, rows, (heads, dim), capacity, window, extras)
