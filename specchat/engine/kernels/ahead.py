"""Weights of a later product, asked for while small kernels run, so that they come from the second cache.

Between two products memory has next to nothing to do. Programs beyond a small kernel's own ask for the weights. They
write nothing, and nothing waits for them: whether and when they run changes no value.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from specchat.engine.formats.layout import Weight, values_of
from specchat.engine.kernels.gpu_shapes import AHEAD_PART, MOST_RATE, ahead_parts
from specchat.engine.kernels.processors import processors

INTERPRETED = tl.constexpr(knobs.runtime.interpret)
"""True if kernels are interpreted, which rules out assembly."""
SECTOR = tl.constexpr(32)
"""Bytes of a quarter of a cache line, which is what one instruction is sure to bring."""
SECTORS = tl.constexpr(AHEAD_PART // SECTOR.value)
"""Sectors of one program."""
AT_ONCE = tl.constexpr(512)
"""Sectors that the threads of a program ask for at a time."""


VARIABLE = "SPECCHAT_PREFETCH"
"""With the value "off" nothing is asked for ahead, on any GPU."""


class Memory(NamedTuple):
    """A GPU's memory: bytes a microsecond, and bytes of the second cache. Without either nothing is asked for."""

    rate: float = 0.0
    cache: int = 0


class Ahead(NamedTuple):
    """A prefetch by a kernel: `parts` times AHEAD_PART bytes, which begin at `start`, uint8 [bytes]."""

    start: Tensor
    parts: int


NONE = Memory()
_GIVEN: ContextVar[Memory | None] = ContextVar("memory", default=None)


@triton.jit  # type: ignore[untyped-decorator]
def fetch(start: tl.tensor, part: tl.tensor) -> None:
    """Ask for a part of what begins at the pointer `start`."""
    for first in range(0, SECTORS, AT_ONCE):
        places = start + (part * SECTORS + first + tl.arange(0, AT_ONCE)) * SECTOR
        if INTERPRETED:
            tl.load(places)
        else:
            tl.inline_asm_elementwise(
                "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [places.to(tl.int64)], tl.int32, False, 1
            )


def of_weight(weight: Weight, launches: int) -> Ahead | None:
    """Return the prefetch of a weight whose product comes after `launches` small ones; None if it is not worth it.

    Its scales, 3 % of it, are left out.
    """
    values = values_of(weight)
    parts = ahead_parts(values.nbytes, launches, *memory_of(values.device))
    return Ahead(values.view(torch.uint8).view(-1), parts) if parts else None


def memory_of(device: torch.device) -> Memory:
    """The memory of a GPU that is bound by it; none of another, if kernels are interpreted, or where it is off."""
    if (given := _GIVEN.get()) is not None:
        return given
    return _bound(device) if device.type == "cuda" and os.environ.get(VARIABLE) != "off" else NONE


@contextmanager
def as_of(memory: Memory) -> Iterator[None]:
    """Launch as on a GPU that is bound by this memory, from main memory too."""
    token = _GIVEN.set(memory)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def whole_memory(device: torch.device) -> Memory:
    """The memory of a GPU, whether it is bound by it or not; none if torch does not tell it."""
    found = torch.cuda.get_device_properties(device)
    # Builds of torch differ in what they tell. Kilohertz, with two bits a cycle on each line of the bus.
    clock, width, size = (
        getattr(found, name, 0) for name in ("memory_clock_rate", "memory_bus_width", "L2_cache_size")
    )
    return Memory(clock * 2 * width / 8 / 1e3, size)


@cache
def _bound(device: torch.device) -> Memory:
    whole = whole_memory(device)
    return whole if whole.rate <= MOST_RATE * processors(device) else NONE
