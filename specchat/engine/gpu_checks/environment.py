"""The GPU that pairs use, or the reason why there is none, with driver, torch and Triton."""

import os
from typing import Any

import torch

from specchat.engine.gpu_checks import card
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.hardware import toolchain
from specchat.engine.hardware.gpu import CHOSEN, Gpu, find_gpu
from specchat.engine.hardware.gpu_failure import first_line

VARIABLES = (
    "CC",
    "CUDA_CACHE_DISABLE",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "SPECCHAT_PREFETCH",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TRITON_ALWAYS_COMPILE",
    "TRITON_CACHE_DIR",
    "TRITON_DEBUG",
    "TRITON_HOME",
    "TRITON_LIBCUDA_PATH",
    "TRITON_PTXAS_PATH",
)
"""Environment variables to note; no others, which may hold keys and tokens."""


def look(notes: Notes) -> None:
    """Note a row on the software and a row for each GPU; "gpu" is the one of pairs, "none" the reason without one."""
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "built for CUDA": torch.version.cuda,
        "built for ROCm": torch.version.hip,
        "C compiler": toolchain.compiler(),
        "missing for Triton": toolchain.unsupported() or None,
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    gpu = find_gpu()
    if isinstance(gpu, Gpu):
        known = card.known_by(CHOSEN.device)
        found |= {"gpu": gpu.name, "index": gpu.index, "known by": known, "free": gpu.free}
        found["multiprocessors"] = gpu.processors
    else:
        found["none"] = gpu
    notes.row(**found)
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        try:
            seen = torch.cuda.get_device_properties(index)
        except (RuntimeError, AssertionError) as error:
            # The driver counts the GPU, but CUDA does not start: it is full, in use or lost.
            notes.row(index=index, error=first_line(error))
            continue
        uuid = str(getattr(seen, "uuid", ""))
        capability = f"{seen.major}.{seen.minor}"
        notes.row(index=index, name=seen.name, capability=capability, memory=seen.total_memory, uuid=uuid)
