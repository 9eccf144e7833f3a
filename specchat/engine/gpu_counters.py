"""How busy a GPU is and how much of its memory is free, as NVIDIA's management library (NVML) tells it.

Asking it makes no context of CUDA and loads no torch, so that any process may.
"""

from dataclasses import dataclass

from specchat.clean import one_line


class CountersError(Exception):
    """The counters cannot be read; says why, in words."""


@dataclass(frozen=True)
class Reading:
    """`busy` is the share of the last sample, 1/6 s to 1 s, in which anything ran, in 0..1; memory in bytes.

    All programs on the GPU count.
    """

    busy: float
    free: int
    total: int


@dataclass(frozen=True)
class Installed:
    """A GPU of this machine: its name, compute capability, and bytes free of all it has."""

    name: str
    capability: tuple[int, int]
    free: int
    total: int


def installed() -> tuple[Installed, ...]:
    """The GPUs that the driver tells of; none where it tells nothing. Which of them CUDA may use is not asked."""
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
    """Those of one GPU. A call may take as long as the driver pleases."""

    def __init__(self, uuid: str) -> None:
        """`uuid` is the GPU's, with its prefix, as in `GPU-1f2e...`.

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
        """Read them.

        Raises:
            CountersError: the GPU was lost, does not count, or counts what cannot be.
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
