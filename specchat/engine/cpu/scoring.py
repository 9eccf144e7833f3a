"""A pass over the layers, the scores of rows, or one after the other, in one function: threads begin once for both.

It is compiled without `passes.py`, which is called by address: two processes share what there is to compile.
"""

from typing import Any

from numba import types

from specchat.engine.cpu.atomics import entered
from specchat.engine.cpu.signatures import HEAD, LAYERS, OF_HEAD, OF_LAYERS
from specchat.engine.cpu.simd import called

run_layers, run_head = entered(LAYERS), entered(HEAD)
"""`passes.layers` and `passes.head` by their entries, as compiled functions call each other."""


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
    """`passes.layers` where x is to go `through` them, then `passes.head` of what is in x where that is wanted.

    `entries` are `passes.ENTRIES`; each has counters of its own, all zeros. The layers end with all threads there, so
    that the head finds x as it will stay.
    """
    if through:
        run_layers(entries[0], (x, rows, start, runs, before, *of_layers, thread, threads))
    if scoring:
        run_head(entries[1], (x, rows, *of_head, thread, threads))
