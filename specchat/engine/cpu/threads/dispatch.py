"""Dispatch of passes to threads through shared memory, without Python between them.

The leading thread writes the address of a pass's record, then a command's number. The others spin for the next command
for a while and only then sleep: a thread that must be woken is late for a pass of a millisecond.
"""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from specchat.engine.cpu.primitives.atomics import address, atomic_load, exchange, fetch_add, word
from specchat.engine.cpu.primitives.records import STEP_BYTES, copy_pass, pass_at, run_operation, step_at
from specchat.engine.cpu.primitives.simd import inner, python_callable
from specchat.engine.cpu.products.shared import LINE, spin

COMMAND, ANNOUNCED, ENDED, RUN, ASLEEP = (LINE * line for line in range(5))
"""Words of the board, a cache line apart: the last command, the number of announced commands, the number of threads
that ended the last one, the address of its pass, and one word a thread: 1 if it sleeps or is about to."""
MAX_THREADS = 2**16
"""A command is its number times MAX_THREADS, plus the threads that it is for."""
_BOARD = types.Array(types.int64, 1, "C")


def board(threads: int) -> NDArray[np.int64]:
    """Make the words that `threads` threads share; all but the first are asleep."""
    made = np.zeros(ASLEEP + LINE * threads, np.int64)
    made[ASLEEP + LINE :: LINE] = 1
    return made


@inner
def run_pass(shared: Any, thread: int, threads: int) -> None:
    """Run the steps and the head of a pass, each if it has one, as thread number `thread` of `threads`.

    The steps end with a barrier, so the head reads the final x.
    """
    run = copy_pass(shared)
    run.thread, run.threads, run.passed, run.turns = thread, threads, 0, 0
    run.normed = run.own + 4 * thread * run.own_size
    run.scratch = run.normed + 2 * run.own_size
    run.room = run.scores + 4 * thread * run.scores_row
    for index in range(run.step_count if run.steps else 0):
        step = step_at(run.steps + STEP_BYTES * index)
        if word(run.parts, step.part):
            run_operation(step.code, run, step.own)
    if run.head:
        run_operation(run.head_code, run, run.head)


@python_callable(types.void(_BOARD))
def announce(shared: Any) -> None:
    """Announce a command, so that no thread falls asleep before it."""
    fetch_add(address(shared), ANNOUNCED)


def withdraw(shared: NDArray[np.int64]) -> None:
    """Withdraw announced commands, so that all threads may sleep."""
    shared[ANNOUNCED] = shared[COMMAND] // MAX_THREADS


@python_callable(types.boolean(_BOARD, types.int64))
def mark_awake(shared: Any, thread: int) -> bool:
    """Mark a thread awake; return True if it slept or was about to, so that it must be woken."""
    asleep: int = exchange(address(shared) + 8 * (ASLEEP + LINE * thread), 0)
    return asleep != 0


@python_callable(types.void(_BOARD, types.int64, types.int64))
def lead(shared: Any, run: int, threads: int) -> None:
    """Run the pass at address `run` in this thread and in the announced threads 1, ..., `threads` - 1."""
    words = address(shared)
    if threads > 1:
        exchange(words + 8 * RUN, run)
        exchange(words + 8 * ENDED, 0)
        exchange(words + 8 * COMMAND, threads + MAX_THREADS * atomic_load(words + 8 * ANNOUNCED))
    run_pass(pass_at(run), 0, threads)
    looks = 0
    while threads > 1 and atomic_load(words + 8 * ENDED) < threads - 1:
        looks = spin(looks)


@python_callable(types.int64(_BOARD, types.int64, types.int64, types.int64))
def follow(shared: Any, thread: int, command: int, awake: int) -> int:
    """Handle commands after `command` until none came for `awake` looks; then return the last one, to sleep."""
    words = address(shared)
    asleep, looks = words + 8 * (ASLEEP + LINE * thread), 0
    while True:
        latest = atomic_load(words + 8 * COMMAND)
        if latest != command:
            command, threads = latest, latest % MAX_THREADS
            if thread < threads:
                run_pass(pass_at(atomic_load(words + 8 * RUN)), thread, threads)
                fetch_add(words, ENDED)
                looks = 0
        elif looks < awake:
            looks = spin(looks)
        else:
            exchange(asleep, 1)
            if atomic_load(words + 8 * ANNOUNCED) == command // MAX_THREADS:
                return command
            exchange(asleep, 0)
            looks = 0
