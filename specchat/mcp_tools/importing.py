"""Imports in a thread, beside a window that has to be drawn meanwhile."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_S = 0.001
"""Seconds after which other threads get their turn."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep other threads running during an import.

    Without it the new objects would be collected again and again, which stops all threads; they stay in any case, so
    no later collection looks at them either.
    """
    collects, usual = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
        gc.freeze()
    finally:
        sys.setswitchinterval(usual)
        if collects:
            gc.enable()
