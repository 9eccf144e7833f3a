"""Multiprocessors of the device, which determine the tiling of products."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch

from specchat.engine.kernels.gpu_shapes import PROCESSORS

_OF_HOST = ContextVar("processors", default=PROCESSORS)


def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; PROCESSORS if kernels are interpreted."""
    return _counted(device) if device.type == "cuda" else _OF_HOST.get()


@contextmanager
def as_with(count: int) -> Iterator[None]:
    """Tile products in main memory as for a GPU of `count` multiprocessors."""
    token = _OF_HOST.set(count)
    try:
        yield
    finally:
        _OF_HOST.reset(token)


@cache
def _counted(device: torch.device) -> int:
    found: int = torch.cuda.get_device_properties(device).multi_processor_count
    return found
