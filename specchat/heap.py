"""The heap of a process that passes on large messages."""

import ctypes
from contextlib import suppress

MMAP_THRESHOLD = -3
"""glibc's number of the option."""
LARGE = 1 << 20
"""Bytes of a block that has a mapping of its own."""


def give_back_large_blocks() -> None:
    """Have the system get large blocks back once they are freed.

    Otherwise glibc puts them into the heap after the first, where a small block behind them keeps all. Elsewhere
    nothing is done.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE)
