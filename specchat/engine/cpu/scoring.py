"""A pass over the layers, the logits of its rows, or both, in one function: threads begin once.

It calls `passes.py` by address and is compiled without it, so two processes can share the compilation.
"""

from typing import Any

from specchat.engine.cpu.records import copy_pass, run_operation
from specchat.engine.cpu.simd import inner


@inner
def run_pass(shared: Any, thread: int, threads: int) -> None:
    """Run the layers and the head of a pass, each if it has one, as thread number `thread` of `threads`.

    The layers end with a barrier, so the head reads the final x.
    """
    run = copy_pass(shared)
    run.thread, run.threads, run.passed, run.turns = thread, threads, 0, 0
    run.normed = run.own + 4 * thread * run.own_size
    run.scratch = run.normed + 2 * run.own_size
    run.room = run.scores + 4 * thread * run.scores_row
    if run.layers:
        run_operation(run.layers_code, run, run.layers)
    if run.head:
        run_operation(run.head_code, run, run.head)
