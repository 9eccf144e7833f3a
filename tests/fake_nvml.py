"""A management library that answers as it is told, in the place of NVIDIA's."""

import sys
from types import SimpleNamespace

import pytest

GPU = "GPU-5f0c"


class NVMLError(Exception):
    pass


class FakeNvml:
    """`busy` in percent, memory in bytes, `link` a generation and lanes; `fails` names what raises `error`."""

    NVMLError = NVMLError
    NVML_CLOCK_MEM = 2

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """In the place of the module until `patch` is undone."""
        self.busy, self.free, self.total = 62, 3 << 30, 8 << 30
        self.capability = (8, 6)
        self.link = (4, 8)
        self.fails, self.error = "", Exception()
        self.calls: list[str] = []
        patch.setitem(sys.modules, "pynvml", self)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise self.error

    def nvmlInit(self) -> None:
        self._called("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:
        self._called("nvmlDeviceGetCount")
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        assert index == 0
        return "handle"

    def nvmlDeviceGetName(self, handle: str) -> str:
        assert handle == "handle"
        return "Card\x1b"

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        assert handle == "handle"
        return self.capability

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:
        assert handle == "handle"
        self._called("nvmlDeviceGetMaxPcieLinkGeneration")
        return self.link[0]

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:
        assert handle == "handle"
        return self.link[1]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:
        assert (handle, clock) == ("handle", self.NVML_CLOCK_MEM)
        self._called("nvmlDeviceGetMaxClockInfo")
        return 9751

    def nvmlDeviceGetMemoryBusWidth(self, handle: str) -> int:
        assert handle == "handle"
        return 384

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self._called("nvmlDeviceGetHandleByUUID")
        if uuid != GPU:
            raise NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        assert handle == "handle"
        self._called("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=self.busy, memory=5)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        assert handle == "handle"
        self._called("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(free=self.free, total=self.total, used=self.total - self.free)
