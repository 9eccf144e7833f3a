"""Utilisation and free memory of a GPU, from NVIDIA's management library (NVML).

NVML needs neither a CUDA context nor torch, so any process may use it.
"""

from dataclasses import dataclass

from specchat.clean import one_line


class CountersError(Exception):
    """The counters cannot be read; the message has the reason."""


@dataclass(frozen=True)
class Reading:
    """Counters over all programs on the GPU.

    `busy` is the share of the last sample, of 1/6 s to 1 s, in which a kernel ran, from 0 to 1. Memory is in bytes.
    """

    busy: float
    free: int
    total: int


@dataclass(frozen=True)
class Installed:
    """A GPU of this machine: name, compute capability, free and total bytes."""

    name: str
    capability: tuple[int, int]
    free: int
    total: int


def installed() -> tuple[Installed, ...]:
    """All GPUs of the driver, including ones that CUDA may not use; none without a driver."""
    try:
        import pynvml as library

        library.nvmlInit()
        found = []
        for index in range(library.nvmlDeviceGetCount()):
            gpu = library.nvmlDeviceGetHandleByIndex(index)
            memory, name = library.nvmlDeviceGetMemoryInfo(gpu), library.nvmlDeviceGetName(gpu)
            capability = tuple(library.nvmlDeviceGetCudaComputeCapability(gpu))
            found.append(Installed(one_line(str(name), 60), capability, memory.free, memory.total))
        return tuple(found)
    except Exception:  # no library, no driver, no permission
        return ()


class Counters:
    """Counters of one GPU. Calls may block in the driver."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU with this `uuid`, prefix included, as in `GPU-1f2e...`.

        Raises:
            CountersError: no library, no driver, no such GPU, or no permission.
        """
        try:
            import pynvml
        except Exception as error:
            raise CountersError(f"the package nvidia-ml-py cannot be used: {one_line(str(error), 80)}") from error
        self._library = pynvml
        try:
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception as error:
            raise CountersError(one_line(str(error), 80)) from error

    def read(self) -> Reading:
        """Read the counters.

        Raises:
            CountersError: the GPU was lost, or gives no or impossible values.
        """
        library = self._library
        try:
            busy = library.nvmlDeviceGetUtilizationRates(self._gpu).gpu
            memory = library.nvmlDeviceGetMemoryInfo(self._gpu)
        except Exception as error:
            raise CountersError(one_line(str(error), 80)) from error
        if not (0 <= busy <= 100 and 0 <= memory.free <= memory.total > 0):
            raise CountersError(f"they say {busy} % busy, {memory.free} of {memory.total} bytes free")
        return Reading(busy / 100, memory.free, memory.total)
