"""Attention of a step's rows over the cache: split-KV partials, then their combination.

Flash-decoding (Dao et al. 2023) with a fixed split size. Query heads that share a key-value head are packed into the
rows of one tile (GQA: Ainslie et al. 2023). Draft tokens form chains or trees (SpecInfer: Miao et al. 2024).
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels import paths
from specchat.engine.kernels.combine import Extras, combine
from specchat.engine.kernels.gpu_shapes import SHARING_HEADS
from specchat.engine.kernels.kv_entries import HeadBlocks, Scales, blocks_of, load_entries
from specchat.engine.kernels.partial_sums import partial_sums
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import Workspace, keys_at_once, padded, registers

LOG2_E = math.log2(math.e)
TILE = SHARING_HEADS
"""Packed rows of one program: more rows take more programs, never a larger tile."""
_TILE = tl.constexpr(TILE)


class Operands(NamedTuple):
    """Queries, keys and values of `attend`, and scales of an int8 cache."""

    query: Tensor
    key: Tensor
    value: Tensor
    scales: Scales | None


class ScoreSizes(NamedTuple):
    """Numbers of a launch; `scale` and `cap` of scores are in powers of 2."""

    heads: int
    capacity: int
    stride_split: int
    scale: float
    cap: float | None
    ring: int | None


class AttentionShape(NamedTuple):
    """Constants of a program: query heads of a key-value head, columns of a head, keys of a pass and of a split.

    `blocks` are those of a head in an int8 cache; None for another.
    """

    group: int
    dim: int
    padded: int
    keys: int
    split: int
    blocks: HeadBlocks | None


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
    tile, split = program % shared_tiles, program // shared_tiles
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
        whole = start // shape.split
        if (split >= whole) & (program >= 0):
            return
        depth, nodes = paths.unpacked(tl.load(at.tree + row, mask=alone, other=0))
        split = tl.where(alone, whole + tl.program_id(0) % 2, split)
        token = tl.where(alone, row, token)
        member = tl.where(alone, tl.arange(0, _TILE), member)
        end = start + depth
        seen = end + tl.zeros_like(token)
    end = tl.minimum(end, sizes.capacity)
    first = split * shape.split
    if first >= end:
        return
    if window is not None:
        # The first KV entry that each row sees, and the first that any of them sees.
        since = seen - window
        if at.tree is not None:
            since += tl.where(alone, 0, paths.depths(at.tree + token, token < rows))
        lowest = tl.min(tl.where(token < rows, since, end), 0)
        if tl.minimum(first + shape.split, end) <= lowest:
            return
    used = (token < rows) & (member < shape.group)
    head = kv * shape.group + member
    d = tl.arange(0, shape.padded)
    inside = d[None, :] < shape.dim
    of_query = (token * sizes.heads + head)[:, None] * shape.dim + d[None, :]
    q = tl.load(operands.query + of_query, mask=used[:, None] & inside, other=0.0)
    held = sizes.capacity if sizes.ring is None else sizes.ring
    k_base = operands.key + kv.to(tl.int64) * held * shape.dim
    v_base = operands.value + kv.to(tl.int64) * held * shape.dim
    k_scales, v_scales = None, None
    if operands.scales is not None:
        k_scales = operands.scales.of_keys + kv.to(tl.int64) * held * shape.blocks.of_head
        v_scales = operands.scales.of_values + kv.to(tl.int64) * held * shape.blocks.of_head
    PADDED: tl.constexpr = shape.padded
    best = tl.full((_TILE,), float("-inf"), tl.float32)
    total = tl.zeros((_TILE,), tl.float32)
    mixed = tl.zeros((_TILE, PADDED), tl.float32)
    for block in range(first, tl.minimum(first + shape.split, end), shape.keys):
        position = block + tl.arange(0, shape.keys)
        slot = _slots(position, start, nodes, first, sizes)
        # Never read what no row sees: 0 * NaN would be NaN.
        there = position < end
        if window is not None:
            there = (position - lowest).to(tl.uint32) < (end - lowest).to(tl.uint32)
        scores = _scores(q, load_entries(k_base, k_scales, slot, there, q, shape), sizes)
        visible = position[None, :] < seen[:, None]
        if window is not None:
            visible = (position[None, :] - since[:, None]).to(tl.uint32) < window
        scores = tl.where(visible, scores, float("-inf"))
        best, total, fade, p = _weights(best, total, scores)
        v = load_entries(v_base, v_scales, slot, there, q, shape)
        mixed = tl.dot(p.to(v.dtype), v, mixed * fade[:, None], input_precision="ieee")
    of_sums = split * sizes.stride_split + token * sizes.heads + head
    tl.store(sums.best + of_sums, best, mask=used)
    tl.store(sums.total + of_sums, total, mask=used)
    # Values of long texts are more numbers than 32 bits count.
    of_mixed = sums.mixed + of_sums.to(tl.int64)[:, None] * shape.dim
    tl.store(of_mixed + d[None, :], mixed, mask=used[:, None] & inside)


@triton.jit  # type: ignore[untyped-decorator]
def _slots(position: tl.tensor, start: tl.tensor, nodes: tl.tensor, first: tl.tensor, sizes: ScoreSizes) -> tl.tensor:
    """Return the KV entries of positions of a split from `first` on, int32 [KEYS].

    Positions from `start` on are those of a path, whose `nodes` int32 [64] are of a tree; None: of a chain.
    """
    slot = position
    if nodes is not None:
        drafted = tl.gather(nodes, tl.minimum(tl.maximum(position - start, 0), 63), 0)
        slot = tl.minimum(tl.where(position < start, position, start + drafted), sizes.capacity - 1)
    if sizes.ring is not None:
        # Positions of a split and the nodes of a tree after them go round a ring once at most.
        slot -= first // sizes.ring * sizes.ring
        slot = tl.where(slot < sizes.ring, slot, slot - sizes.ring)
    return slot


@triton.jit  # type: ignore[untyped-decorator]
def _scores(q: tl.tensor, k: tl.tensor, sizes: ScoreSizes) -> tl.tensor:
    """Return the scaled and capped scores of queries [TILE, D] and keys [KEYS, D], in powers of 2."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * sizes.scale
    if sizes.cap is not None:
        scores = sizes.cap * (2 * tl.sigmoid(2 * scores) - 1)
    return scores


@triton.jit  # type: ignore[untyped-decorator]
def _weights(best: tl.tensor, total: tl.tensor, scores: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return `best` and `total` with more keys, of scores [TILE, KEYS], the factor on older sums, and the weights."""
    new = tl.maximum(best, tl.max(scores, 1))
    # A row without visible keys so far keeps -inf and sums zeros.
    origin = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp2(scores - origin[:, None])
    fade = tl.exp2(best - origin)
    return new, total * fade + tl.sum(p, 1), fade, p


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    length: Tensor,
    tree: Tensor | None,
    workspace: Workspace,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    scale: float | None = None,
    window: int = 0,
    sinks: Tensor | None = None,
    gates: Tensor | None = None,
    positions: int | None = None,
    cap: float = 0.0,
    scales: Scales | None = None,
) -> None:
    """Compute attention of a chain or a tree of rows, softmax in float32.

    A row of a tree has bit for bit the result of a chain along its path: the path's keys are summed by depth, wherever
    they lie.

    Args:
        query: compute dtype [R, heads, D], rotated.
        keys, values: compute dtype [kv, capacity, D], with `scales` int8; row r's own is KV entry length + r.
        length: int32 [1], KV entries before the first row.
        tree: None for a chain: row r attends to KV entries up to length + r. Otherwise int64 [R]: row r attends to all
            KV entries before length, and to length + j for each set bit j of tree[r]: its own and its ancestors'.
        out: compute dtype [R, heads * value], written: the first `value` numbers of each head's D.
        rows: 1 to R, at most 64 of a tree.
        skip: int32 [1]; non-zero skips the kernels.
        scale: factor on the scores, D ** -0.5 if None.
        window: KV entries that a row attends to at most, the last of its path; 0: all.
        sinks: float32 [heads], the score of a value of zeros beside the others, scaled already (Xiao et al. 2023).
        gates: float32 [splits, R, columns], added in index order; a row begins with a query and a gate of D values for
            each head. The sigmoid of the gate multiplies the head's output (Qiu et al. 2025).
        cap: scaled scores x are cap * tanh(x / cap) (Gemma team 2024); 0: as they are.
        positions: of the longest text, where `keys` and `values` are a ring of fewer: KV entry p modulo their number.

    Raises:
        ModelError: more than TILE query heads share a key-value head.
    """
    kv_heads, held, dim = keys.shape
    scale = dim**-0.5 if scale is None else scale
    capacity = held if positions is None else positions
    heads = query.shape[1]
    group = heads // kv_heads
    if group > TILE:
        raise ModelError(
            f"{group} query heads share a key-value head; the GPU kernels take {TILE} at most: run the model on the CPU"
        )
    programs = triton.cdiv(rows * group, TILE) * triton.cdiv(capacity, workspace.split)
    at, stride = RowPlaces(length, tree, skip), workspace.best.stride(0)
    factor, limit = (scale / cap, cap * LOG2_E) if cap else (scale * LOG2_E, None)
    _partial[(programs + (0 if tree is None else 2 * rows), kv_heads)](
        Operands(query, keys, values, scales),
        at,
        workspace,
        rows,
        triton.cdiv(rows * group, TILE),
        ScoreSizes(heads, capacity, stride, factor, limit, None if held == capacity else held),
        window or None,
        AttentionShape(group, dim, padded(dim), keys_at_once(dim), workspace.split, blocks_of(dim, scales)),
        num_warps=4,
        num_stages=2,
        maxnreg=registers(dim),
        enable_fp_fusion=True,
    )
    extras = Extras(sinks, None if gates is None else partial_sums(gates))
    combine(workspace, at, out, rows, (heads, dim), capacity, window, extras)


def reference_attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
    tree: list[int] | None,
    scale: float | None = None,
    window: int = 0,
    sinks: Tensor | None = None,
    gates: Tensor | None = None,
    cap: float = 0.0,
) -> Tensor:
    """Output of `attend`, in the precision of its arguments: [rows, heads * D]."""
    (rows, heads, dim), kv_heads = query.shape, len(keys)
    outputs = []
    for row in range(rows):
        mask = 2 ** (row + 1) - 1 if tree is None else tree[row]
        slots = [*range(start), *(start + j for j in range(64) if mask >> j & 1)][-window:]
        q = query[row].view(kv_heads, heads // kv_heads, dim)
        scores = q @ keys[:, slots].transpose(1, 2) * (dim**-0.5 if scale is None else scale)
        scores = cap * torch.tanh(scores / cap) if cap else scores
        beside = scores.new_full((heads,), float("-inf")) if sinks is None else sinks.to(scores)
        weights = torch.cat((scores, beside.view(kv_heads, -1, 1)), -1).softmax(-1)[..., :-1]
        outputs.append((weights @ values[:, slots]).reshape(heads * dim))
    mixed = torch.stack(outputs)
    if gates is not None:
        queries_and_gates = gates.to(mixed).sum(0)[:, : 2 * heads * dim].unflatten(-1, (heads, 2, dim))
        mixed *= queries_and_gates[:, :, 1].flatten(1).sigmoid()
    return mixed
