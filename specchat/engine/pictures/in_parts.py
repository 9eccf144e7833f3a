"""A long call of a library in parts, between which its caller does other things.

The call runs in a thread of its own. It stops where it calls `pause`, and the caller goes on; one of the two runs at
any time, so nothing else needs to know of threads, and the cores are never shared.
"""

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextvars import ContextVar
from threading import Semaphore, Thread
from typing import TypeVar

Result = TypeVar("Result")
_PAUSE: ContextVar[Callable[[], None]] = ContextVar("pause", default=lambda: None)
"""Stops the call that runs in this thread."""


class _Left(BaseException):
    """The caller has left the call."""


def pause() -> None:
    """Let the caller of a call in parts go on; elsewhere do nothing."""
    _PAUSE.get()()


def in_parts(call: Callable[[], Result]) -> Generator[None, None, Result]:
    """Return what `call` returns; a part of it runs before each value.

    Closing the iterator leaves the call where it paused.

    Raises:
        BaseException: what `call` raises.
    """
    turn, paused, left = Semaphore(0), Semaphore(0), False
    outcome: Future[Result] = Future()

    def stop() -> None:
        paused.release()
        turn.acquire()
        if left:
            raise _Left

    def run() -> None:
        _PAUSE.set(stop)
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)
        paused.release()

    thread = Thread(target=run, name="parts", daemon=True)
    thread.start()
    try:
        paused.acquire()
        while not outcome.done():
            yield
            turn.release()
            paused.acquire()
    finally:
        left = True
        turn.release()
        thread.join()
    return outcome.result()
