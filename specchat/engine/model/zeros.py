"""Main memory that the system provides as it is used."""

import mmap
import sys
from contextlib import suppress

import torch


def zeros(size: int) -> torch.Tensor:
    """Zeros, uint8 [size], that begin on a page; a page takes memory from its first use on.

    Huge pages would take 2 MiB at once for the first token of each head.
    """
    some = max(size, 1)
    if sys.platform == "win32":
        space = mmap.mmap(-1, some)
    else:
        space = mmap.mmap(-1, some, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with suppress(OSError):  # of a kernel without huge pages
            space.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(space, dtype=torch.uint8)[:size]
