"""Values on their way from the host to a device."""

from collections.abc import Sequence

import torch
from torch import Tensor


def send(values: Sequence[int], to: Tensor) -> None:
    """Copy values into a tensor from the device's next launch on; the host does not wait for it.

    They go by pinned memory of their own, which torch does not reuse before the device has read it.
    Pageable memory is read at once by some drivers only.
    """
    to.copy_(torch.tensor(values, dtype=to.dtype, pin_memory=to.device.type == "cuda"), non_blocking=True)
