"""Attention as a step launches it: Qwen3-8B (32 heads, 8 kv, 128 a head), a head of 80, chains and trees."""

from collections.abc import Callable
from dataclasses import replace

from torch import bfloat16, empty, int32, int64

from specchat.engine.kernels.attention import _partial, attend
from specchat.engine.kernels.combine import _combine
from specchat.engine.kernels.workspace import keys_at_once, workspace
from tests.kernels.compiled import Case, launched

ROWS, HEADS, CAPACITY, HELD, WINDOW = 16, 32, 4096, 1088, 1000
POSITION = empty(1, dtype=int32)
CAPPED = 2 * keys_at_once(256) * 256
"""Values of keys and values that a pass of the loop over heads of 256 reads."""


def _attended(
    group: int, dim: int, tree: bool, windowed: bool = False, further: bool = False, cap: float = 0.0
) -> Callable[[], None]:
    """A launch over a cache, or over a ring with a window; `further` with sinks and with gates, of 4 partial sums."""
    query, out = empty(ROWS, HEADS, dim, dtype=bfloat16), empty(ROWS, HEADS * dim, dtype=bfloat16)
    cache = empty(HEADS // group, HELD if windowed else CAPACITY, dim, dtype=bfloat16)
    space, paths = workspace(ROWS, HEADS, dim, CAPACITY, "cpu"), empty(ROWS, dtype=int64) if tree else None
    more = (empty(HEADS), empty(4, ROWS, 2 * HEADS * dim)) if further else (None, None)
    rest = POSITION, paths, space, out, ROWS, POSITION, None, WINDOW if windowed else 0, *more, CAPACITY
    return lambda: attend(query, cache, cache, *rest, cap=cap)


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
ALIKE = [
    case.name
    for case in CASES
    if "512 a head" in case.name or ("256 a head" in case.name and case.name.endswith((", window", ", capped")))
]

PLANTED = [
    replace(case, name=f"{case.name}: not fused", options={**case.options, "enable_fp_fusion": False})
    for case in CASES
    if case.name in ("tree, 128 a head", "combine a tree")
]
"""Programs that round otherwise than those beside them."""
