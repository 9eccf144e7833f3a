"""A pass over the layers, the logits of its rows, or both, in one function: threads begin once.

It calls `passes.py` by address and is compiled without it, so two processes can share the compilation.
"""

from typing import Any

from numba import types

from specchat.engine.cpu.atomics import entered
from specchat.engine.cpu.signatures import HEAD, LAYERS, OF_HEAD, OF_LAYERS
from specchat.engine.cpu.simd import called

run_layers, run_head = entered(LAYERS), entered(HEAD)
"""Calls of `passes.layers` and `passes.head` by their addresses."""


@called(
    types.void(
        types.Array(types.float32, 2, "C"),
        types.int64,
        types.int64,
        types.Array(types.int64, 2, "C"),
        types.Array(types.int64, 1, "C"),
        types.UniTuple(types.int64, 2),
        OF_LAYERS,
        OF_HEAD,
        types.boolean,
        types.boolean,
        types.int64,
        types.int64,
    ),
)
def passed(
    x: Any,
    rows: int,
    start: int,
    runs: Any,
    before: Any,
    entries: Any,
    of_layers: Any,
    of_head: Any,
    through: bool,
    scoring: bool,
    thread: int,
    threads: int,
) -> None:
    """Run `passes.layers` if `through` is set, then `passes.head` on x if `scoring` is set.

    `entries` are `passes.ENTRIES`. The two have counters of their own, all zeros. The layers end with a barrier, so
    the head reads the final x.
    """
    if through:
        run_layers(entries[0], (x, rows, start, runs, before, *of_layers, thread, threads))
    if scoring:
        run_head(entries[1], (x, rows, *of_head, thread, threads))
