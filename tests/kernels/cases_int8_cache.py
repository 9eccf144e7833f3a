"""The kernels of an int8 cache as a step launches them, in shapes of `cases_attention` and `cases_rowwise`."""

from torch import bfloat16, empty, int8, int32, int64

from specchat.engine.kernels.attention import Scoring, _partial, attend
from specchat.engine.kernels.gpu_shapes import attention_splits
from specchat.engine.kernels.kv_entries import KvEntries, Scales
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.rope import RopeNorms, RopeRows, Turns, _rope_and_write, rope_and_write
from specchat.engine.kernels.workspace import keys_at_once, workspace
from tests.kernels.compiled import Case, launched

ROWS, HEADS, CAPACITY, HELD, WINDOW, SPLITS = 16, 32, 4096, 1088, 1000, 4
FLAG, EPS = empty(1, dtype=int32), 1e-6


def _cache(kv_heads: int, held: int, dim: int) -> KvEntries:
    scales = empty(kv_heads, held, dim // min(32, dim & -dim))
    return KvEntries(*[empty(kv_heads, held, dim, dtype=int8)] * 2, Scales(scales, scales))


def _attended(kind: str, dim: int, group: int, window: int = 0) -> Case:
    query, out = empty(ROWS, HEADS, dim, dtype=bfloat16), empty(ROWS, HEADS * dim, dtype=bfloat16)
    entries = _cache(HEADS // group, HELD if window else CAPACITY, dim)
    paths = empty(ROWS, dtype=int64) if kind == "tree" else None
    space = workspace(ROWS, HEADS, dim, attention_splits(CAPACITY), "cpu")
    rest = RowPlaces(FLAG, paths, FLAG), space, out, ROWS, Scoring(window=window, positions=CAPACITY)
    return launched(
        f"{kind}, {dim} a head{', window' if window else ''}",
        _partial,
        lambda: attend(query, entries, *rest),
        2 * keys_at_once(dim) * dim,
    )


def _rotated(dim: int, held: int = CAPACITY) -> Case:
    kv_heads = HEADS // 4
    partials, table = empty(SPLITS, ROWS, (HEADS + 2 * kv_heads) * dim), empty(CAPACITY, dim // 2)
    norm, query = (empty(dim, dtype=bfloat16), EPS), empty(ROWS, HEADS, dim, dtype=bfloat16)
    entries, at = _cache(kv_heads, held, dim), RopeRows(ROWS, FLAG, empty(ROWS, dtype=int32), FLAG)
    return launched(
        f"rope, {dim} a head{', a ring' if held < CAPACITY else ''}",
        _rope_and_write,
        lambda: rope_and_write(partials, RopeNorms(norm, norm), Turns(table, table, dim), at, query, entries),
    )


CASES = [
    *(
        _attended(kind, dim, group)
        for dim, group in ((80, 1), (128, 4), (256, 2), (512, 8))
        for kind in ("chain", "tree")
    ),
    *(_attended(kind, 128, 4, WINDOW) for kind in ("chain", "tree")),
    *(_rotated(dim) for dim in (80, 128, 256, 512)),
    _rotated(128, HELD),
]
ALIKE = [f"{kind}, {dim} a head" for kind in ("chain", "tree", "rope") for dim in (80, 512)]
