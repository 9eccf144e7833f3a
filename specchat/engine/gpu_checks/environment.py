"""The GPU that would be used, or why none is, and what its driver, torch and Triton say."""

import os
from typing import Any

import torch

from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.model import toolchain
from specchat.engine.model.gpu import Gpu, find_gpu

FAMILIES = ("CUDA", "NVIDIA", "PYTORCH", "TORCH", "TRITON")
"""Environment variables that begin so are noted."""


def look(notes: Notes) -> None:
    """One row of figures; "gpu" is the one that pairs run on, and otherwise "none" says why."""
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "built for CUDA": torch.version.cuda,
        "built for ROCm": torch.version.hip,
        "C compiler": toolchain.compiler(),
        "missing for Triton": toolchain.lacking() or None,
        "variables": {key: value for key, value in os.environ.items() if key.startswith(FAMILIES)},
    }
    gpu = find_gpu()
    if isinstance(gpu, Gpu):
        found |= {"gpu": gpu.name, "free": gpu.free, "multiprocessors": gpu.processors}
    else:
        found["none"] = gpu
    notes.row(**found)
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        card = torch.cuda.get_device_properties(index)
        capability = f"{card.major}.{card.minor}"
        notes.row(index=index, name=card.name, capability=capability, memory=card.total_memory, uuid=str(card.uuid))
