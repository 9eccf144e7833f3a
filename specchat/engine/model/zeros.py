"""Main memory that the system provides as it is used."""

import mmap
import sys

import torch


def zeros(size: int) -> torch.Tensor:
    """Zeros, uint8 [size], that begin on a page; a page takes memory from its first use on."""
    some = max(size, 1)
    if sys.platform == "win32":
        space = mmap.mmap(-1, some)
    else:
        space = mmap.mmap(-1, some, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(space, dtype=torch.uint8)[:size]
