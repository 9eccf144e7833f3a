"""Free memory where a tune runs, and the part of a GPU that is left to the chat."""

from typing import TYPE_CHECKING

from specchat.engine.errors import EngineError
from specchat.engine.hardware import free_memory as memory
from specchat.models.words import size
from specchat.tune.plan import IMPORTED, TunePlan

if TYPE_CHECKING:
    import torch

LEFT = 256 << 20
"""Bytes of a GPU that a tune leaves to the chat, which captures graphs as it goes on."""


def free_bytes(device: "torch.device") -> int | None:
    """Bytes that this process can take on `device`; None where the system does not report it."""
    if device.type == "cpu":
        return memory.free_memory()
    from specchat.engine.hardware.gpu import free_gpu_memory  # imports torch

    return max(0, free_gpu_memory(device) - LEFT)


def leave_room(device: "torch.device") -> None:
    """Let this process run out of a GPU's memory before the chat does."""
    if device.type == "cpu":
        return
    import torch

    free, (_, total) = free_bytes(device) or 0, torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved(device) + free) / total), device)


def check_room(plan: TunePlan, device: "torch.device", loaded: int) -> None:
    """Check that a tune fits the free memory; `loaded` bytes of its pair are already in use.

    Raises:
        EngineError: memory does not hold it.
    """
    # What the process takes whatever it does is taken.
    here = IMPORTED + (loaded if device.type == "cpu" else 0)
    free = memory.free_memory()
    if free is not None and free < plan.memory - here:
        raise EngineError(
            "memory",
            f"This takes {size(plan.memory)} of memory, and {size(here + free)} are there. Close other programs, or "
            "choose a smaller pair.",
        )
    if device.type == "cuda" and (there := loaded + (free_bytes(device) or 0)) < plan.gpu:
        raise EngineError(
            "memory",
            f"This takes {size(plan.gpu)} of the GPU's memory beside the chat, and {size(there)} are there: "
            f"{size(plan.gpu - there)} are missing. With --device cpu it is trained in main memory; heads or a smaller "
            "draft take less.",
        )
