"""Values on their way from the host to a device."""

from collections.abc import Sequence

import torch
from torch import Tensor


def send(values: Sequence[int], to: Tensor) -> None:
    """Copy values into a tensor from the device's next launch on; the host does not wait for it.

    They go by pinned memory of their own, which torch gives to nobody else before the device has read it. Whether
    pageable memory is read at once depends on the driver.
    """
    to.copy_(torch.tensor(values, dtype=to.dtype, pin_memory=to.device.type == "cuda"), non_blocking=True)
