"""What threads that make a pass together are told, without Python between them.

The thread that leads leaves in memory what the pass takes, and then a number, the order. The others look for the next
order for a while after each, and only then sleep: one that has to be woken is late for a pass of a millisecond.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from specchat.engine.cpu.atomics import address, entered, entry, seen, swapped, taken
from specchat.engine.cpu.scoring import passed
from specchat.engine.cpu.simd import called, primitive
from specchat.engine.cpu.together import LINE, moment

ORDER, CALLED, ENDED, ASLEEP = (LINE * line for line in range(4))
"""Words of the board, lines apart: the last order, how many were announced, how many threads have ended it, and from
there on a line for each thread: whether it sleeps, or is about to."""
MOST = 2**16
"""An order is its number times MOST and how many threads it is for."""
ROOM = 512
"""Words for what a pass takes, at the end of the board."""
_WANTED = passed.nopython_signatures[0].args
_BOARD = types.Array(types.int64, 1, "C")
_run = entered(_WANTED)
PASSED = entry(passed)
"""Where `passed` begins."""


def board(threads: int) -> NDArray[np.int64]:
    """What so many threads share: all but the first are asleep."""
    made = np.zeros(ASLEEP + LINE * threads + ROOM, np.int64)
    made[ASLEEP + LINE : -ROOM : LINE] = 1
    return made


def _place(context: Any, builder: Any, where: Any) -> Any:
    """A pointer to what a pass takes before thread and threads, at an address."""
    kind = ir.LiteralStructType([context.get_value_type(one) for one in _WANTED[:-2]])
    if context.get_abi_sizeof(kind) > 8 * ROOM:
        raise NotImplementedError(f"a pass takes {context.get_abi_sizeof(kind)} bytes")
    return builder.inttoptr(where, kind.as_pointer())


@primitive
def _leave(typing: Any, where: Any, arguments: Any) -> Any:
    """Put what a pass takes at an address."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left = _place(context, builder, values[0])
        for index, value in enumerate(cgutils.unpack_tuple(builder, values[1])):
            cast = context.cast(builder, value, arguments[index], _WANTED[index])
            builder.store(cast, cgutils.gep_inbounds(builder, left, 0, index))
        return context.get_dummy_value()

    return types.void(types.int64, arguments), code


@primitive
def _obey(typing: Any, begins: Any, where: Any, thread: Any, threads: Any) -> Any:
    """Calls `passed`, which begins at an address, with what `_leave` left at another."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left = _place(context, builder, values[1])
        given = [builder.load(cgutils.gep_inbounds(builder, left, 0, index)) for index in range(len(_WANTED) - 2)]
        pointer = builder.inttoptr(values[0], context.call_conv.get_function_type(types.none, _WANTED).as_pointer())
        context.call_conv.call_function(builder, pointer, types.none, _WANTED, [*given, *values[2:]])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), code


@called(types.void(_BOARD))
def announce(shared: Any) -> None:
    """An order will be given, so that no thread falls asleep before it."""
    taken(address(shared), CALLED)


def take_back(shared: NDArray[np.int64]) -> None:
    """Whatever was announced, no order comes of it: all may sleep."""
    shared[CALLED] = shared[ORDER] // MOST


@called(types.boolean(_BOARD, types.int64))
def sent_for(shared: Any, thread: int) -> bool:
    """Whether a thread sleeps, or is about to, and so has to be woken; it counts as awake from here on."""
    asleep: int = swapped(address(shared) + 8 * (ASLEEP + LINE * thread), 0)
    return asleep != 0


@called(types.void(_BOARD, types.int64, *_WANTED[:-2], types.int64))
def lead(
    shared: Any,
    begins: int,
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
    threads: int,
) -> None:
    """`passed`, which begins at PASSED, by this thread and those from 1 to `threads` - 1, who were called out."""
    given = (x, rows, start, runs, before, entries, of_layers, of_head, through, scoring)
    words = address(shared)
    if threads > 1:
        _leave(words + 8 * (len(shared) - ROOM), given)
        swapped(words + 8 * ENDED, 0)
        swapped(words + 8 * ORDER, threads + MOST * seen(words + 8 * CALLED))
    _run(begins, (*given, 0, threads))
    looks = 0
    while threads > 1 and seen(words + 8 * ENDED) < threads - 1:
        looks = moment(looks)


@called(types.int64(_BOARD, types.int64, types.int64, types.int64, types.int64))
def follow(shared: Any, begins: int, thread: int, order: int, awake: int) -> int:
    """Do what is ordered after `order`, until nothing was for so many looks and this thread is to sleep.

    Returns the last order.
    """
    words = address(shared)
    asleep, looks = words + 8 * (ASLEEP + LINE * thread), 0
    while True:
        given = seen(words + 8 * ORDER)
        if given != order:
            order, threads = given, given % MOST
            if thread < threads:
                _obey(begins, words + 8 * (len(shared) - ROOM), thread, threads)
                taken(words, ENDED)
                looks = 0
        elif looks < awake:
            looks = moment(looks)
        else:
            swapped(asleep, 1)
            if seen(words + 8 * CALLED) == order // MOST:
                return order
            swapped(asleep, 0)
            looks = 0
