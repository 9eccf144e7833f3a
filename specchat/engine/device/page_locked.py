"""Main memory that a GPU's kernels read in place."""

import weakref

import torch
from torch import Tensor

from specchat.engine.errors import ModelError

PORTABLE_AND_MAPPED = 3
"""cudaHostRegisterPortable and cudaHostRegisterMapped."""


def page_locked(tensor: Tensor, device: torch.device) -> Tensor:
    """Let kernels on `device` read a tensor in main memory; return it. It is so until it is released.

    Torch's own pinned memory takes the next power of two of bytes, which would be a third more for the tables of
    Gemma 4 E4B.

    Raises:
        ModelError: the system does not lock so much memory.
    """
    if device.type != "cuda":
        return tensor
    runtime, address = torch.cuda.cudart(), tensor.data_ptr()
    with torch.cuda.device(device):
        failed = int(runtime.cudaHostRegister(address, tensor.nbytes, PORTABLE_AND_MAPPED))
    if failed:
        raise ModelError(
            f"The GPU cannot read {tensor.nbytes / 2**30:.1f} GiB of the model in main memory (CUDA error {failed}): "
            'free main memory, or run the model with device = "cpu".'
        )
    weakref.finalize(tensor, runtime.cudaHostUnregister, address).atexit = False
    return tensor
