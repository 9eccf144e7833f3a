"""The counters of a GPU, over a management library that is scripted."""

import sys

import pytest

from specchat.engine.hardware.gpu_counters import (
    ASSUMED_BUS,
    Counters,
    CountersError,
    Installed,
    Reading,
    bus_rate,
    installed,
)
from tests.fake_nvml import GPU, FakeNvml, NVMLError


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml(monkeypatch)


def test_use_and_free_memory_are_read(nvml: FakeNvml) -> None:
    counters = Counters(GPU)
    assert counters.read() == Reading(0.62, 3 << 30, 8 << 30)
    nvml.busy, nvml.free = 100, 0
    assert counters.read() == Reading(1.0, 0, 8 << 30)
    assert nvml.calls.count("nvmlInit") == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("nvmlInit", NVMLError("NVML Shared Library Not Found")),
        ("nvmlInit", OSError("libnvidia-ml.so.1: wrong ELF class")),
        ("nvmlInit", AttributeError("no such function")),
        ("nvmlDeviceGetHandleByUUID", NVMLError("Insufficient Permissions")),
        ("nvmlDeviceGetUtilizationRates", NVMLError("GPU is lost\x1b[2J")),
        ("nvmlDeviceGetMemoryInfo", NVMLError("Not Supported")),
    ],
)
def test_counters_that_cannot_be_read_say_why(nvml: FakeNvml, call: str, error: Exception) -> None:
    nvml.fails, nvml.error = call, error
    with pytest.raises(CountersError) as told:
        Counters(GPU).read()
    assert str(told.value) == str(error).replace("\x1b", "␛")


@pytest.mark.usefixtures("nvml")
def test_a_gpu_that_is_not_there_is_told() -> None:
    with pytest.raises(CountersError, match="Not Found"):
        Counters("GPU-0000")


def test_a_package_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(CountersError, match="nvidia-ml-py"):
        Counters(GPU)


@pytest.mark.parametrize(("busy", "free", "total"), [(101, 1, 2), (-1, 1, 2), (5, 3, 2), (5, -1, 2), (5, 0, 0)])
def test_what_cannot_be_is_not_believed(nvml: FakeNvml, busy: int, free: int, total: int) -> None:
    nvml.busy, nvml.free, nvml.total = busy, free, total
    with pytest.raises(CountersError, match=f"{busy} % busy"):
        Counters(GPU).read()


def test_the_gpus_of_a_machine_are_told(nvml: FakeNvml) -> None:
    assert installed() == (Installed("Card␛", (8, 6), 3 << 30, 8 << 30, bus_rate(GPU), 936.096e9),)
    nvml.fails, nvml.error = "nvmlInit", NVMLError("no driver")
    assert installed() == ()


@pytest.mark.parametrize(("link", "rate"), [((3, 16), 12.6e9), ((4, 16), 25.2e9), ((5, 8), 25.2e9), ((5, 16), 50.4e9)])
def test_the_bus_follows_from_the_link(nvml: FakeNvml, link: tuple[int, int], rate: float) -> None:
    """Four fifths of what PCI Express carries: 0.985 GB/s a lane of the third generation, twice that of the next."""
    nvml.link = link
    assert bus_rate(GPU) == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize("link", [(9, 16), (4, 0)])
def test_a_link_that_cannot_be_is_assumed(nvml: FakeNvml, link: tuple[int, int]) -> None:
    nvml.link = link
    assert bus_rate(GPU) == ASSUMED_BUS


def test_a_link_that_is_not_told_is_assumed(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.link = (3, 4)
    assert bus_rate("GPU-0000") == ASSUMED_BUS
    nvml.fails, nvml.error = "nvmlDeviceGetMaxPcieLinkGeneration", NVMLError("Not Supported")
    assert bus_rate(GPU) == installed()[0].bus == ASSUMED_BUS
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert bus_rate(GPU) == ASSUMED_BUS
