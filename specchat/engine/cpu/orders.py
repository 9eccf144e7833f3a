"""Dispatch of passes to threads through shared memory, without Python between them.

The leading thread writes the arguments of a pass, then a number, the order. The others spin for the next order for a
while and only then sleep: a thread that must be woken is late for a pass of a millisecond.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from specchat.engine.cpu.atomics import address, atomic_load, caller_of, code_address, exchange, fetch_add
from specchat.engine.cpu.scoring import run_pass
from specchat.engine.cpu.simd import python_callable, typed_primitive
from specchat.engine.cpu.together import LINE, spin

ORDER, ANNOUNCED, ENDED, ASLEEP = (LINE * line for line in range(4))
"""Words of the board, a cache line apart: the last order, the number of announced orders, the number of threads that
ended the last one, and one word a thread: 1 if it sleeps or is about to."""
MAX_THREADS = 2**16
"""An order is its number times MAX_THREADS, plus the threads that it is for."""
ARGS_WORDS = 512
"""Words for the arguments of a pass, at the end of the board."""
_TYPES = run_pass.nopython_signatures[0].args
_BOARD = types.Array(types.int64, 1, "C")
_run = caller_of(_TYPES)
RUN_PASS = code_address(run_pass)
"""Address of `run_pass`."""


def board(threads: int) -> NDArray[np.int64]:
    """Make the words that `threads` threads share; all but the first are asleep."""
    made = np.zeros(ASLEEP + LINE * threads + ARGS_WORDS, np.int64)
    made[ASLEEP + LINE : -ARGS_WORDS : LINE] = 1
    return made


def _args_at(context: Any, builder: Any, where: Any) -> Any:
    """Pointer to the arguments of a pass, except thread and threads, at an address."""
    kind = ir.LiteralStructType([context.get_value_type(one) for one in _TYPES[:-2]])
    if context.get_abi_sizeof(kind) > 8 * ARGS_WORDS:
        raise NotImplementedError(f"a pass takes {context.get_abi_sizeof(kind)} bytes")
    return builder.inttoptr(where, kind.as_pointer())


@typed_primitive
def _write_args(typing: Any, where: Any, arguments: Any) -> Any:
    """Write the arguments of a pass to an address."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left = _args_at(context, builder, values[0])
        for index, value in enumerate(cgutils.unpack_tuple(builder, values[1])):
            cast = context.cast(builder, value, arguments[index], _TYPES[index])
            builder.store(cast, cgutils.gep_inbounds(builder, left, 0, index))
        return context.get_dummy_value()

    return types.void(types.int64, arguments), code


@typed_primitive
def _run_order(typing: Any, begins: Any, where: Any, thread: Any, threads: Any) -> Any:
    """Call `run_pass` at address `begins` with the arguments that `_write_args` wrote."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left = _args_at(context, builder, values[1])
        given = [builder.load(cgutils.gep_inbounds(builder, left, 0, index)) for index in range(len(_TYPES) - 2)]
        pointer = builder.inttoptr(values[0], context.call_conv.get_function_type(types.none, _TYPES).as_pointer())
        context.call_conv.call_function(builder, pointer, types.none, _TYPES, [*given, *values[2:]])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), code


@python_callable(types.void(_BOARD))
def announce(shared: Any) -> None:
    """Announce an order, so that no thread falls asleep before it."""
    fetch_add(address(shared), ANNOUNCED)


def withdraw(shared: NDArray[np.int64]) -> None:
    """Withdraw announced orders, so that all threads may sleep."""
    shared[ANNOUNCED] = shared[ORDER] // MAX_THREADS


@python_callable(types.boolean(_BOARD, types.int64))
def mark_awake(shared: Any, thread: int) -> bool:
    """Mark a thread awake; return True if it slept or was about to, so that it must be woken."""
    asleep: int = exchange(address(shared) + 8 * (ASLEEP + LINE * thread), 0)
    return asleep != 0


@python_callable(types.void(_BOARD, types.int64, *_TYPES[:-2], types.int64))
def lead(
    shared: Any,
    begins: int,
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
    threads: int,
) -> None:
    """Run `run_pass`, at address `begins`, in this thread and in the announced threads 1, ..., `threads` - 1."""
    given = (x, rows, start, spans, ancestors, addresses, layer_args, head_args, through, scoring)
    words = address(shared)
    if threads > 1:
        _write_args(words + 8 * (len(shared) - ARGS_WORDS), given)
        exchange(words + 8 * ENDED, 0)
        exchange(words + 8 * ORDER, threads + MAX_THREADS * atomic_load(words + 8 * ANNOUNCED))
    _run(begins, (*given, 0, threads))
    looks = 0
    while threads > 1 and atomic_load(words + 8 * ENDED) < threads - 1:
        looks = spin(looks)


@python_callable(types.int64(_BOARD, types.int64, types.int64, types.int64, types.int64))
def follow(shared: Any, begins: int, thread: int, order: int, awake: int) -> int:
    """Handle orders after `order` until none came for `awake` looks; then return the last one, to sleep."""
    words = address(shared)
    asleep, looks = words + 8 * (ASLEEP + LINE * thread), 0
    while True:
        given = atomic_load(words + 8 * ORDER)
        if given != order:
            order, threads = given, given % MAX_THREADS
            if thread < threads:
                _run_order(begins, words + 8 * (len(shared) - ARGS_WORDS), thread, threads)
                fetch_add(words, ENDED)
                looks = 0
        elif looks < awake:
            looks = spin(looks)
        else:
            exchange(asleep, 1)
            if atomic_load(words + 8 * ANNOUNCED) == order // MAX_THREADS:
                return order
            exchange(asleep, 0)
            looks = 0
