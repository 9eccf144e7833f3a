"""The worker ends with its parent, also where native code holds Python's lock and no thread of its own would notice."""

import ctypes
import os
import select
import signal
import sys

LOOK_MS = 1000
"""How often the watching process looks whether the worker is still there."""
_PR_SET_PDEATHSIG = 1


def hold(requests: int) -> None:
    """Tie this process to its parent, which writes to the pipe `requests`; call it before any thread is started.

    Linux sends the signal when the parent's thread ends that started this process; elsewhere a process of its own
    watches the pipe.
    """
    if not (sys.platform == "linux" and _signal_asked()):
        watch(requests)
    elif _hung_up(requests, 0):  # the parent ended before the signal was asked for
        os._exit(0)


def _signal_asked() -> bool:
    try:
        return ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (OSError, AttributeError):
        return False


def watch(requests: int) -> None:
    """Start a process that kills this one when nobody can write to `requests` any more, and ends with it."""
    if not hasattr(os, "fork"):
        return
    worker = os.getpid()
    if os.fork():
        return
    # The only descriptor that it keeps is the pipe: another one's end would be waited for in vain.
    os.dup2(requests, 0)
    os.closerange(1, os.sysconf("SC_OPEN_MAX"))
    while os.getppid() == worker:
        if _hung_up(0, LOOK_MS):
            os.kill(worker, signal.SIGKILL)
            break
    os._exit(0)


def _hung_up(pipe: int, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(milliseconds))
