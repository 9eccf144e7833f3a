"""Copies of values from the host to a device."""

from collections.abc import Sequence

import torch
from torch import Tensor


def send(values: Sequence[int], to: Tensor) -> None:
    """Copy values into a tensor before the device's next launch, without waiting.

    The copy uses its own pinned memory, which torch does not reuse before the device has read it. Only some drivers
    read pageable memory at once.
    """
    to.copy_(torch.tensor(values, dtype=to.dtype, pin_memory=to.device.type == "cuda"), non_blocking=True)
