"""Attention of chains and trees against its reference, at small shapes."""

import torch
from torch import Tensor

from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.references import (
    reference_attend,
)
from specchat.engine.kernels.attention import Scoring
from specchat.engine.kernels.attention import attend as launch
from specchat.engine.kernels.gpu_shapes import attention_splits
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import workspace

MASKS = [0b1, 0b11, 0b101, 0b1011, 0b10011]
"""A tree of a root, two children, and two children of the first of these."""
KINDS = ("chain", None, 16), ("prompt", None, 17), ("tree", MASKS, len(MASKS))
"""Names, masks and numbers of the rows of attention."""
WINDOW = 100
"""Positions that attention looks back on. The window crosses a boundary between splits."""


def attend(notes: Notes, start: int = 300, heads: int = 4, kv: int = 2, dim: int = 64, window: int = 0) -> None:
    """Attention of a chain, and of a tree, against float64."""
    for kind, masks, rows in KINDS:
        query, keys, values = attended(rows, start, heads, kv, dim, window)
        out = run_attention(query, keys, values, start, masks, Scoring(window=window))
        used = query.double(), keys.double(), values.double()
        truth = reference_attend(*used, start, masks, Scoring(window=window))
        what = f"{kind} attention in a window" if window else f"{kind} attention"
        notes.within(what, place.largest(out.double() - truth), place.ROUNDING[place.dtype()], rows=rows)


def gated(notes: Notes, start: int = 300, heads: int = 4, kv: int = 2, dim: int = 64) -> None:
    """Attention with sinks and gates of a chain, and of a tree, against float64."""
    for kind, masks, rows in KINDS:
        query, keys, values = attended(rows, start, heads, kv, dim)
        further = sinks_and_gates(rows, heads, dim)
        out = run_attention(query, keys, values, start, masks, further)
        used = query.double(), keys.double(), values.double()
        truth = reference_attend(*used, start, masks, further)
        what = f"{kind} attention with sinks and gates"
        notes.within(what, place.largest(out.double() - truth), place.ROUNDING[place.dtype()], rows=rows)


def ringed(notes: Notes, start: int = 500, heads: int = 4, kv: int = 2, dim: int = 64) -> None:
    """Attention over a ring of KV entries against that over all of them, bit for bit."""
    rows, held = len(MASKS), 3 * 64
    query, keys, values = attended(rows, start, heads, kv, dim, WINDOW)
    last = torch.arange(start + rows - held, start + rows, device=keys.device)
    rings = torch.empty(2, kv, held, dim, device=keys.device, dtype=keys.dtype)
    rings[:, :, last % held] = torch.stack((keys, values))[:, :, last]
    for kind, masks in (("chain", None), ("tree", MASKS)):
        whole = run_attention(query, keys, values, start, masks, Scoring(window=WINDOW))
        own = run_attention(query, rings[0], rings[1], start, masks, Scoring(window=WINDOW, positions=keys.shape[1]))
        notes.row(what=f"{kind} attention over a ring", right=torch.equal(own, whole))
        notes.expect(torch.equal(own, whole), f"{kind} attention over a ring: not the bits of a whole cache")


def sinks_and_gates(rows: int, heads: int, dim: int) -> Scoring:
    """Scores of sinks, and a product of queries and gates in 3 partial sums."""
    return Scoring(sinks=place.random(heads, seed=14), gates=place.random(3, rows, 2 * heads * dim, seed=15))


def attended(rows: int, start: int, heads: int, kv: int, dim: int, window: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, with NaN at positions that no row attends to."""
    dtype, capacity = place.dtype(), 64 * ((start + rows) // 64 + 2)
    query = place.random(rows, heads, dim, seed=8, dtype=dtype)
    keys, values = place.random(2, kv, capacity, dim, seed=9, dtype=dtype)
    keys[:, start + rows :] = values[:, start + rows :] = torch.nan
    before = max(0, start + 1 - window) if window else 0
    keys[:, :before] = values[:, :before] = torch.nan
    return query, keys, values


def run_attention(
    query: Tensor, keys: Tensor, values: Tensor, start: int, masks: list[int] | None, of: Scoring
) -> Tensor:
    """Attention by the kernels: [rows, heads * D]."""
    rows, heads, dim = query.shape
    out = torch.full((rows, heads * dim), torch.nan, device=query.device, dtype=query.dtype)
    space = workspace(rows, heads, dim, attention_splits(of.positions or keys.shape[1], of.window, rows), query.device)
    length = torch.tensor([start], dtype=torch.int32, device=query.device)
    tree = None if masks is None else torch.tensor(masks, device=query.device)
    entries = KvEntries(keys, values)
    launch(query.contiguous(), entries, RowPlaces(length, tree), space, out, rows, of)
    return out
