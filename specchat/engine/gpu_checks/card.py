"""The identity of this process's GPU, without Triton, which may be missing."""

from contextlib import suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version

import torch

from specchat.engine.hardware.gpu import CHOSEN
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.hardware.toolchain import DRIVER


def record(device: torch.device | None = None) -> GpuRecord:
    """The record of a GPU, by default this process's, read before anything can fail there."""
    device = device or CHOSEN.device
    return GpuRecord.of(known_by(device), partial(torch.cuda.mem_get_info, device))


@cache
def known_by(device: torch.device) -> str:
    """The name of a GPU with the beginning of its UUID, its driver and the packages that use it, a line each."""
    # Under WSL2 only CUDA reports the driver.
    of = torch.cuda.get_device_properties(device)
    known = [f"{of.name} (GPU-{str(of.uuid)[:8]})", str(getattr(torch._C, "_cuda_getDriverVersion", int)())]
    with suppress(OSError):
        known.append(DRIVER.read_text(encoding="utf-8").splitlines()[0])
    for package in ("torch", "triton", "specchat"):
        with suppress(PackageNotFoundError):
            known.append(f"{package} {version(package)}")
    return "\n".join(known)
