"""Attention of a step's rows over the cache: split-KV partials, then their combination.

Flash-decoding (Dao et al. 2023) with a fixed split size. Query heads that share a key-value head are packed into the
rows of one tile (GQA: Ainslie et al. 2023). Draft tokens form chains or trees (SpecInfer: Miao et al. 2024).
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels import paths
from specchat.engine.kernels.combine import combine
from specchat.engine.kernels.gpu_shapes import SHARING_HEADS
from specchat.engine.kernels.workspace import Workspace, keys_at_once, padded, registers

LOG2_E = math.log2(math.e)
TILE = SHARING_HEADS
"""Packed rows of one program: more rows take more programs, never a larger tile."""


@triton.jit(do_not_specialize=["rows", "shared_tiles", "window", "ring"])  # type: ignore[untyped-decorator]
def _partial(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    length: tl.tensor,
    tree: tl.tensor,
    skip: tl.tensor,
    best_out: tl.tensor,
    total_out: tl.tensor,
    mixed_out: tl.tensor,
    rows: tl.tensor,
    shared_tiles: tl.tensor,
    heads: tl.tensor,
    capacity: tl.tensor,
    stride_split: tl.tensor,
    scale: tl.tensor,
    cap: tl.tensor,
    window: tl.tensor,
    ring: tl.tensor,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    TILE: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    program = tl.program_id(0)
    kv = tl.program_id(1)
    start = tl.load(length)
    if tree is not None:
        program -= 2 * rows
    tile = program % shared_tiles
    split = program // shared_tiles
    packed = tile * TILE + tl.arange(0, TILE)
    token = packed // GROUP
    member = packed % GROUP
    if tree is None:
        end = start + tl.minimum((tile * TILE + TILE - 1) // GROUP + 1, rows)
        seen = start + token + 1
    else:
        # Rows share tiles for the keys before the draft tokens. In the two splits that can hold draft tokens, each
        # token has its own tile, which gathers the keys of its path into the positions of a chain.
        alone = program < 0
        row = tl.program_id(0) // 2
        whole = start // SPLIT
        if (split >= whole) & (program >= 0):
            return
        depth, nodes = paths.unpacked(tl.load(tree + row, mask=alone, other=0))
        split = tl.where(alone, whole + tl.program_id(0) % 2, split)
        token = tl.where(alone, row, token)
        member = tl.where(alone, tl.arange(0, TILE), member)
        end = start + depth
        seen = end + tl.zeros_like(token)
    end = tl.minimum(end, capacity)
    first = split * SPLIT
    if first >= end:
        return
    if window is not None:
        # The first KV entry that each row sees, and the first that any of them sees.
        since = seen - window
        if tree is not None:
            since += tl.where(alone, 0, paths.depths(tree + token, token < rows))
        lowest = tl.min(tl.where(token < rows, since, end), 0)
        if tl.minimum(first + SPLIT, end) <= lowest:
            return
    used = (token < rows) & (member < GROUP)
    head = kv * GROUP + member
    d = tl.arange(0, PADDED)
    inside = d[None, :] < DIM
    q = tl.load(query + (token * heads + head)[:, None] * DIM + d[None, :], mask=used[:, None] & inside, other=0.0)
    held = capacity
    if ring is not None:
        held = ring
        # Positions of a split and the nodes of a tree after them go round a ring once at most.
        turns = first // ring * ring
    k_base = keys + kv.to(tl.int64) * held * DIM
    v_base = values + kv.to(tl.int64) * held * DIM
    best = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, PADDED), tl.float32)
    for block in range(first, tl.minimum(first + SPLIT, end), KEYS):
        position = block + tl.arange(0, KEYS)
        slot = position
        if tree is not None:
            drafted = tl.gather(nodes, tl.minimum(tl.maximum(position - start, 0), 63), 0)
            slot = tl.minimum(tl.where(position < start, position, start + drafted), capacity - 1)
        if ring is not None:
            slot -= turns
            slot = tl.where(slot < ring, slot, slot - ring)
        place = slot[:, None] * DIM + d[None, :]
        # Never read what no row sees: 0 * NaN would be NaN.
        valid = (position < end)[:, None] & inside
        if window is not None:
            valid = ((position - lowest).to(tl.uint32) < (end - lowest).to(tl.uint32))[:, None] & inside
        k = tl.load(k_base + place, mask=valid, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if cap is not None:
            scores = cap * (2 * tl.sigmoid(2 * scores) - 1)
        visible = position[None, :] < seen[:, None]
        if window is not None:
            visible = (position[None, :] - since[:, None]).to(tl.uint32) < window
        scores = tl.where(visible, scores, float("-inf"))
        new = tl.maximum(best, tl.max(scores, 1))
        # A row without visible keys so far keeps -inf and sums zeros.
        origin = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(scores - origin[:, None])
        fade = tl.exp2(best - origin)
        total = total * fade + tl.sum(p, 1)
        v = tl.load(v_base + place, mask=valid, other=0.0)
        mixed = tl.dot(p.to(v.dtype), v, mixed * fade[:, None], input_precision="ieee")
        best = new
    place = split * stride_split + token * heads + head
    tl.store(best_out + place, best, mask=used)
    tl.store(total_out + place, total, mask=used)
    tl.store(mixed_out + place[:, None] * DIM + d[None, :], mixed, mask=used[:, None] & inside)


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
) -> None:
    """Compute attention of a chain or a tree of rows, softmax in float32.

    A row of a tree has bit for bit the result of a chain along its path: the path's keys are summed by depth, wherever
    they lie.

    Args:
        query: compute dtype [R, heads, D], rotated.
        keys, values: compute dtype [kv, capacity, D]; row r's own is KV entry length + r.
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
    stride = workspace.best.stride(0)
    shared_tiles = triton.cdiv(rows * group, TILE)
    programs = shared_tiles * triton.cdiv(capacity, workspace.split) + (0 if tree is None else 2 * rows)
    _partial[(programs, kv_heads)](
        query,
        keys,
        values,
        length,
        tree,
        skip,
        workspace.best,
        workspace.total,
        workspace.mixed,
        rows,
        shared_tiles,
        heads,
        capacity,
        stride,
        scale / cap if cap else scale * LOG2_E,
        cap * LOG2_E if cap else None,
        window or None,
        None if held == capacity else held,
        GROUP=group,
        DIM=dim,
        PADDED=padded(dim),
        TILE=TILE,
        KEYS=keys_at_once(dim),
        SPLIT=workspace.split,
        num_warps=4,
        num_stages=2,
        maxnreg=registers(dim),
        enable_fp_fusion=True,
    )
    combine(workspace, length, tree, skip, out, rows, heads, dim, capacity, window, sinks, gates)


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
