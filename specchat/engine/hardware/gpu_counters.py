"""Utilisation, free memory and bus of a GPU, from NVIDIA's management library (NVML).

NVML needs neither a CUDA context nor torch, so any process may use it.
"""

from typing import Any

from specchat.clean import one_line
from specchat.dataclass import dataclass

LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes a second of a lane of PCI Express, by generation."""
OF_LINK = 0.8
"""Part of it that experts get: 0.81 to 0.84 of PCI Express 5 on an H200."""
ASSUMED_BUS = 16 * LANE[4] * OF_LINK
"""Bytes a second of main memory to a GPU whose link is unknown."""


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
    """A GPU of this machine: name, compute capability, free and total bytes, bytes a second from main memory.

    `rate` are the bytes a second of its own memory, by its clock and its width; 0 where the driver does not tell.
    """

    name: str
    capability: tuple[int, int]
    free: int
    total: int
    bus: float = ASSUMED_BUS
    rate: float = 0.0


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
            rates = _bus(library, gpu), _memory_rate(library, gpu)
            found.append(Installed(one_line(str(name), 60), capability, memory.free, memory.total, *rates))
        return tuple(found)
    except Exception:  # no library, no driver, no permission
        return ()


def free_memory_of(uuid: str) -> int | None:
    """Free bytes of the GPU with this `uuid`; None where the driver does not tell."""
    try:
        return Counters(uuid).read().free
    except CountersError:
        return None


def bus_rate(uuid: str) -> float:
    """Bytes a second that the GPU with this `uuid` reads of main memory, by its link; assumed where that is unknown."""
    try:
        import pynvml as library

        library.nvmlInit()
        return _bus(library, library.nvmlDeviceGetHandleByUUID(uuid))
    except Exception:  # no library, no driver, no such GPU
        return ASSUMED_BUS


def _bus(library: Any, gpu: Any) -> float:
    # The current link is slower while the GPU is idle.
    try:
        lane = LANE[library.nvmlDeviceGetMaxPcieLinkGeneration(gpu)]
        rate = lane * library.nvmlDeviceGetMaxPcieLinkWidth(gpu) * OF_LINK
    except Exception:  # no PCI Express, no permission, a generation to come
        return ASSUMED_BUS
    return rate or ASSUMED_BUS


def _memory_rate(library: Any, gpu: Any) -> float:
    try:
        clock = library.nvmlDeviceGetMaxClockInfo(gpu, library.NVML_CLOCK_MEM)
        # Two transfers in a cycle.
        return float(2e6 * clock * library.nvmlDeviceGetMemoryBusWidth(gpu) / 8)
    except Exception:  # an old driver, no permission
        return 0.0


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
