"""A pass over the layers, the logits of its rows, or both, in one function: threads begin once.

It calls `passes.py` by address and is compiled without it, so two processes can share the compilation.
"""

from typing import Any

from numba import types

from specchat.engine.cpu.atomics import caller_of
from specchat.engine.cpu.signatures import HEAD, HEAD_ARGS, LAYER_ARGS, LAYERS
from specchat.engine.cpu.simd import by_address

run_layers, run_head = caller_of(LAYERS), caller_of(HEAD)
"""Calls of `passes.layers` and `passes.head` by their addresses."""


@by_address(
    types.void(
        types.Array(types.float32, 2, "C"),
        types.int64,
        types.int64,
        types.Array(types.int64, 2, "C"),
        types.Array(types.int64, 1, "C"),
        types.UniTuple(types.int64, 2),
        LAYER_ARGS,
        HEAD_ARGS,
        types.boolean,
        types.boolean,
        types.int64,
        types.int64,
    ),
)
def run_pass(
    x: Any,
    rows: int,
    start: int,
    spans: Any,
    ancestors: Any,
    addresses: Any,
    layer_args: Any,
    head_args: Any,
    through: bool,
    scoring: bool,
    thread: int,
    threads: int,
) -> None:
    """Run `passes.layers` if `through` is set, then `passes.head` on x if `scoring` is set.

    `addresses` are `passes.PASS_ADDRESSES`. The two have counters of their own, all zeros. The layers end with a
    barrier, so the head reads the final x.
    """
    if through:
        run_layers(addresses[0], (x, rows, start, spans, ancestors, *layer_args, thread, threads))
    if scoring:
        run_head(addresses[1], (x, rows, *head_args, thread, threads))
