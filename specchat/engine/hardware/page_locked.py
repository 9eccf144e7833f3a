"""Main memory that a GPU's kernels read in place."""

import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from mmap import PAGESIZE

import torch
from torch import Tensor

from specchat.engine.errors import PageLockRefused
from specchat.engine.formats.gpu_blocks import GridWords, WordBlocks
from specchat.engine.formats.layout import Blocks, EightBit, FileRows, FourBit, Joined, Plain, Weight

PORTABLE_AND_MAPPED = 3
"""cudaHostRegisterPortable and cudaHostRegisterMapped."""
MOST_TRIED = 2 << 30
"""Bytes; more would take seconds, and push files out of main memory."""
TRIES = 6
"""Sizes that are tried before no memory counts as lockable."""


def page_locked(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy a tensor to main memory that kernels on `device` read; it is locked until the copy is released.

    Torch's own pinned memory takes the next power of two of bytes, which would be half as much again for the table of
    Gemma 4 E4B.

    Raises:
        PageLockRefused: the system does not lock so much memory.
    """
    if device.type != "cuda":
        return torch.empty(tensor.shape, dtype=dtype).copy_(tensor)
    memory, unlock = _locked(tensor.numel() * dtype.itemsize, device)
    made = memory.view(dtype).view(tensor.shape).copy_(tensor)
    weakref.finalize(made, unlock).atexit = False
    return made


def roomy(size: int, device: torch.device) -> Tensor:
    """Main memory uint8 [size] for copies from and to `device`, locked until it is released where the system does."""
    if device.type == "cuda":
        with suppress(PageLockRefused):
            memory, unlock = _locked(size, device)
            weakref.finalize(memory, unlock).atexit = False
            return memory
    return torch.empty(size, dtype=torch.uint8)


def lockable(size: int, device: torch.device) -> int:
    """Bytes of main memory, of `size` that are wanted, which the system locks now, tried by halves.

    WSL locks about 1 GiB in all, and half of it in Docker: where MOST_TRIED is locked, all counts as lockable.
    """
    tried = min(size, MOST_TRIED)
    for attempt in range(TRIES):
        with suppress(PageLockRefused):
            _, unlock = _locked(tried, device)
            unlock()
            return tried if attempt else size
        tried //= 2
    return 0


def _locked(size: int, device: torch.device) -> tuple[Tensor, Callable[[], object]]:
    """Locked main memory, uint8 [size], and what unlocks it."""
    # Whole pages of its own, for a page is locked once.
    pages = -(-size // PAGESIZE) * PAGESIZE
    whole = torch.empty(pages + PAGESIZE, dtype=torch.uint8)
    first = -whole.data_ptr() % PAGESIZE
    runtime, address = torch.cuda.cudart(), whole.data_ptr() + first
    with torch.cuda.device(device):
        failed = int(runtime.cudaHostRegister(address, pages, PORTABLE_AND_MAPPED))
    if failed:
        _take_error(device)
        raise PageLockRefused(size, failed)
    return whole[first : first + size], partial(runtime.cudaHostUnregister, address)


def _take_error(device: torch.device) -> None:
    """Drop the pending error of CUDA's runtime: torch raises and clears it after its next kernel, whatever that is."""
    with suppress(RuntimeError):
        torch.ones(1, device=device)


def values_in_main(weight: Weight, device: torch.device) -> Weight:
    """Copy the values of a weight to main memory that kernels on `device` read; its scales stay where they are.

    Raises:
        PageLockRefused: the system does not lock so much memory.
    """
    if isinstance(weight, Joined):
        return Joined(tuple(_part_in_main(part, device) for part in weight.parts))
    return _part_in_main(weight, device)


def _part_in_main(weight: Plain, device: torch.device) -> Plain:
    def locked(values: Tensor) -> Tensor:
        return page_locked(values, values.dtype, device)

    match weight:
        case FourBit(packed=values):
            return replace(weight, packed=locked(values))
        case EightBit(values=values):
            return replace(weight, values=locked(values))
        case WordBlocks(low=low, high=high):
            return replace(weight, low=locked(low), high=None if high is None else locked(high))
        case GridWords(low=low, high=high, signs=signs):
            of_high = None if high is None else locked(high)
            return replace(weight, low=locked(low), high=of_high, signs=locked(signs))
        case Blocks():
            raise TypeError("Blocks are not in the order of the kernels")
        case FileRows():
            raise TypeError("in the bytes of a file")
        case _:
            return locked(weight)
