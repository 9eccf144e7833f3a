"""Main memory that a GPU's kernels read in place."""

import weakref
from mmap import PAGESIZE

import torch
from torch import Tensor

from specchat.engine.errors import ModelError

PORTABLE_AND_MAPPED = 3
"""cudaHostRegisterPortable and cudaHostRegisterMapped."""


def page_locked(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy a tensor to main memory that kernels on `device` read; it is locked until the copy is released.

    Torch's own pinned memory takes the next power of two of bytes, which would be half as much again for the table of
    Gemma 4 E4B.

    Raises:
        ModelError: the system does not lock so much memory.
    """
    if device.type != "cuda":
        return torch.empty(tensor.shape, dtype=dtype).copy_(tensor)
    size = tensor.numel() * dtype.itemsize
    # Whole pages of its own, for a page is locked once.
    pages = -(-size // PAGESIZE) * PAGESIZE
    whole = torch.empty(pages + PAGESIZE, dtype=torch.uint8)
    first = -whole.data_ptr() % PAGESIZE
    runtime, address = torch.cuda.cudart(), whole.data_ptr() + first
    with torch.cuda.device(device):
        failed = int(runtime.cudaHostRegister(address, pages, PORTABLE_AND_MAPPED))
    if failed:
        raise ModelError(
            f"The GPU cannot read {size / 2**30:.1f} GiB of the model in main memory (CUDA error {failed}): free main "
            'memory, or run the model with device = "cpu".'
        )
    made = whole[first : first + size].view(dtype).view(tensor.shape).copy_(tensor)
    weakref.finalize(made, runtime.cudaHostUnregister, address).atexit = False
    return made
