"""Ends the worker with its parent, even if native code holds the GIL and no thread could notice."""

import ctypes
import os
import select
import signal
import sys

POLL_MS = 1000
"""Interval at which the watching process checks the worker."""
_PR_SET_PDEATHSIG = 1


def hold(requests: int) -> None:
    """Tie this process to its parent, which writes to the pipe `requests`; call this before starting threads.

    Linux signals when the parent's starting thread ends; elsewhere another process watches the pipe.
    """
    if not (sys.platform == "linux" and _request_signal()):
        watch(requests)
    elif _hung_up(requests, 0):  # the parent ended before the signal was requested
        os._exit(0)


def _request_signal() -> bool:
    try:
        return ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (OSError, AttributeError):
        return False


def watch(requests: int) -> None:
    """Start a process that kills this one once `requests` has no writer, and ends with it."""
    if not hasattr(os, "fork"):
        return
    worker = os.getpid()
    if os.fork():
        return
    # It keeps only the pipe, so that it does not hold other descriptors open.
    os.dup2(requests, 0)
    os.closerange(1, os.sysconf("SC_OPEN_MAX"))
    while os.getppid() == worker:
        if _hung_up(0, POLL_MS):
            os.kill(worker, signal.SIGKILL)
            break
    os._exit(0)


def _hung_up(pipe: int, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(milliseconds))
