"""What the GPU of this process is known by. Without Triton, which may be what is missing."""

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

from specchat.engine.gpu_record import GpuRecord
from specchat.engine.model.gpu import CHOSEN
from specchat.engine.model.toolchain import DRIVER


def record() -> GpuRecord:
    """Its record; asked before anything can fail there."""
    return GpuRecord.of(known_by(CHOSEN.device))


@cache
def known_by(device: torch.device) -> str:
    """The name of a GPU, its driver and what runs on it."""
    # Windows below WSL2 shows its driver to CUDA alone.
    known = [torch.cuda.get_device_name(device), str(getattr(torch._C, "_cuda_getDriverVersion", int)())]
    with suppress(OSError):
        known.append(DRIVER.read_text(encoding="utf-8").splitlines()[0])
    for package in ("torch", "triton", "specchat"):
        with suppress(PackageNotFoundError):
            known.append(f"{package} {version(package)}")
    return "\n".join(known)
