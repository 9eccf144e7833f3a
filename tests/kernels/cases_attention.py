"""Attention as a step launches it: Qwen3-8B (32 heads, 8 kv, 128 a head), a head of 80, chains and trees."""

from collections.abc import Callable
from dataclasses import replace

from torch import bfloat16, empty, int32, int64

from specchat.engine.kernels.attention import Scoring, _partial, attend
from specchat.engine.kernels.attention_rows import _attend_rows
from specchat.engine.kernels.combine import _combine
from specchat.engine.kernels.gpu_shapes import attention_splits
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import keys_at_once, workspace
from tests.kernels.compiled import Case, launched

ROWS, MANY, HEADS, CAPACITY, HELD, WINDOW = 16, 64, 32, 4096, 1088, 1000
POSITION = empty(1, dtype=int32)
CAPPED = 2 * keys_at_once(256) * 256
"""Values of keys and values that a pass of the loop over heads of 256 reads."""


def _attended(
    group: int,
    dim: int,
    tree: bool,
    windowed: bool = False,
    further: bool = False,
    cap: float = 0.0,
    rows: int = ROWS,
) -> Callable[[], None]:
    """A launch over a cache, or over a ring with a window; `further` with sinks and with gates, of 4 partial sums."""
    query, out = empty(rows, HEADS, dim, dtype=bfloat16), empty(rows, HEADS * dim, dtype=bfloat16)
    cache = empty(HEADS // group, HELD if windowed else CAPACITY, dim, dtype=bfloat16)
    space, paths = (
        workspace(rows, HEADS, dim, attention_splits(CAPACITY), "cpu"),
        empty(rows, dtype=int64) if tree else None,
    )
    more = (empty(HEADS), empty(4, rows, 2 * HEADS * dim)) if further else (None, None)
    of = Scoring(None, WINDOW if windowed else 0, cap, *more, CAPACITY)
    entries, at = KvEntries(cache, cache), RowPlaces(POSITION, paths, POSITION)
    return lambda: attend(query, entries, at, space, out, rows, of)


def _of_kind(kind: str, dim: int, windowed: bool) -> list[Case]:
    """Both kernels of a chain or a tree, but no combination of heads of 80."""
    launch = _attended({80: 1, 128: 4, 256: 2, 512: 8}[dim], dim, kind == "tree", windowed)
    window = ", window" if windowed else ""
    combined = f"combine a {kind}{window}" if dim == 128 else f"combine a {kind}, {dim} a head{window}"
    partial = launched(f"{kind}, {dim} a head{window}", _partial, launch, 2 * keys_at_once(dim) * dim)
    return [partial] if dim == 80 else [partial, launched(combined, _combine, launch)]


CASES = [
    *_of_kind("chain", 80, windowed=False),
    *(
        case
        for dim in (128, 256, 512)
        for kind in ("chain", "tree")
        for windowed in (False, True)
        for case in _of_kind(kind, dim, windowed)
    ),
    *(
        launched(
            f"combine a {kind}, 256 a head, sinks and gates",
            _combine,
            _attended(2, 256, kind == "tree", further=True),
        )
        for kind in ("chain", "tree")
    ),
    *(
        launched(f"{kind}, 256 a head, capped", _partial, _attended(2, 256, kind == "tree", cap=50.0), CAPPED)
        for kind in ("chain", "tree")
    ),
]
CASES += [
    launched(
        f"many rows, {dim} a head{', window' * windowed}",
        _attend_rows,
        _attended({128: 4, 256: 2, 512: 8}[dim], dim, False, windowed, rows=MANY),
        2 * keys_at_once(dim) * dim,
    )
    for dim in (128, 256, 512)
    for windowed in (False, True)
]
ALIKE = [
    case.name
    for case in CASES
    if "512 a head" in case.name or ("256 a head" in case.name and case.name.endswith((", window", ", capped")))
]

PLANTED = [
    replace(case, name=f"{case.name}: not fused", options={**case.options, "enable_fp_fusion": False})
    for case in CASES
    if case.name == "tree, 128 a head"
]
"""One that rounds otherwise than those beside it; the combination says itself what it fuses."""
