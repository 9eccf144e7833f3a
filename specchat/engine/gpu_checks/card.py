"""What the GPU of this process is known by. Without Triton, which may be what is missing."""

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from specchat.engine.gpu_record import GpuRecord
from specchat.engine.model.gpu import CHOSEN

DRIVER = Path("/proc/driver/nvidia/version")


def record() -> GpuRecord:
    """Its record; asked before anything can fail there."""
    return _record(CHOSEN.device)


@cache
def _record(device: torch.device) -> GpuRecord:
    # Windows below WSL2 shows its driver to CUDA alone.
    known = [torch.cuda.get_device_name(device), str(getattr(torch._C, "_cuda_getDriverVersion", int)())]
    with suppress(OSError):
        known.append(DRIVER.read_text(encoding="utf-8").splitlines()[0])
    for package in ("torch", "triton", "specchat"):
        with suppress(PackageNotFoundError):
            known.append(f"{package} {version(package)}")
    return GpuRecord.of("\n".join(known))
