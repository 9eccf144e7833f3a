"""A pass over the layers, the scores of rows, or one after the other, in one function: threads begin once for both."""

from typing import Any

from numba import types

from specchat.engine.cpu.atomics import entered, entry
from specchat.engine.cpu.passes import head, layers
from specchat.engine.cpu.simd import called

run_layers, run_head = entered(layers), entered(head)
"""Both by their entries, as compiled functions call each other."""
ENTRIES = entry(layers), entry(head)
OF_LAYERS = types.Tuple(layers.nopython_signatures[0].args[5:-2])
"""What `passes.layers` takes after `before`, without thread and threads."""
OF_HEAD = types.Tuple(head.nopython_signatures[0].args[2:-2])
"""What `passes.head` takes after the rows, without thread and threads."""


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

    `entries` are ENTRIES; each has counters of its own, all zeros. The layers end with all threads there, so that the
    head finds x as it will stay.
    """
    if through:
        run_layers(entries[0], (x, rows, start, runs, before, *of_layers, thread, threads))
    if scoring:
        run_head(entries[1], (x, rows, *of_head, thread, threads))
