"""The use of the GPU in the engine panel: what is shown, what is said, and that nothing waits for it."""

import sys
from dataclasses import replace
from threading import Event
from time import monotonic

import pytest
from conftest import ask, loaded, make_app, screen_text, wait_until

from specchat.engine.hardware.gpu_counters import Counters, Reading
from specchat.insight.gpu_use import NO_USE, GpuUse, GpuWatch
from specchat.tui.app import SpecchatApp
from specchat.tui.screens import feed
from tests import fake
from tests.fake import FakeEngine
from tests.fake_nvml import GPU, FakeNvml, NVMLError
from tests.parts import changed

SIZE = (130, 40)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.setattr(feed, "_IDLE_CHECK", 0.05)
    return FakeNvml(monkeypatch)


def app_on_gpu() -> SpecchatApp:
    return make_app(FakeEngine(("Some words.",), info=changed(fake.INFO, gpu=GPU)))


def looked(watch: GpuWatch, gpu: str = GPU, *, idle: bool = True) -> str:
    """What two looks say, the second after the thread of the first."""
    said = watch.look(gpu, idle=idle)
    if watch._thread is not None:
        watch._thread.join(60)
    return said or watch.look(gpu, idle=idle)


async def test_use_and_free_memory_stand_in_the_panel(nvml: FakeNvml) -> None:
    nvml.busy = 12
    app = app_on_gpu()
    async with app.run_test(size=SIZE) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await wait_until(pilot, lambda: "12 % · 3.0 GiB free" in screen_text(app))
        assert "other programs" not in screen_text(app)
        nvml.busy, nvml.free = 80, 200 << 20
        await wait_until(pilot, lambda: "other programs keep the GPU 80 %" in screen_text(app))
        await wait_until(pilot, lambda: "only 200 MiB of the" in screen_text(app))


async def test_counters_that_are_lost_are_told_once_and_the_chat_goes_on(nvml: FakeNvml) -> None:
    app = app_on_gpu()
    async with app.run_test(size=SIZE) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await wait_until(pilot, lambda: "GiB free" in screen_text(app))
        nvml.fails, nvml.error = "nvmlDeviceGetMemoryInfo", NVMLError("GPU is lost\x1b[2J")
        await wait_until(pilot, lambda: "cannot be read (GPU is lost␛[2J)" in screen_text(app))
        assert "GiB free" not in screen_text(app)
        calls = len(nvml.calls)
        await ask(app, pilot, "still there?")
        await pilot.pause(0.3)
        assert len(nvml.calls) == calls
        assert len(app.session.conversation.turns) == 2


async def test_a_pair_on_the_cpu_asks_no_gpu(nvml: FakeNvml) -> None:
    app = make_app(FakeEngine(("Some words.",)))
    async with app.run_test(size=SIZE) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await pilot.pause(0.3)
        assert nvml.calls == []
        assert "free" not in screen_text(app)


def test_the_package_is_not_imported_before_a_pair_runs_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert GpuWatch().look("", idle=True) == ""
    assert "pynvml" not in sys.modules


def test_only_what_is_busy_without_a_reply_is_others(nvml: FakeNvml) -> None:
    watch = GpuWatch()
    nvml.busy = 90
    looked(watch, idle=False)
    assert watch.use == GpuUse(Reading(0.9, 3 << 30, 8 << 30), None)
    looked(watch)
    assert watch.use.others is None, "the sample may reach back into the reply"
    for _ in range(2):
        looked(watch)
    assert watch.use.others == 0.9
    nvml.busy = 99
    looked(watch, idle=False)
    looked(watch, idle=False)
    assert (watch.use.reading, watch.use.others) == (Reading(0.99, 3 << 30, 8 << 30), 0.9)
    assert "other programs keep the GPU 90 % busy" in watch.use.trouble


def test_a_desktop_is_no_trouble() -> None:
    idle = Reading(0.1, 4 << 30, 8 << 30)
    assert GpuUse(idle, 0.1).trouble == ""
    assert GpuUse(replace(idle, busy=1.0), 0.2).trouble == "", "a reply keeps it busy"


@pytest.mark.usefixtures("nvml")
def test_another_gpu_is_read_anew_and_the_same_trouble_told_once() -> None:
    watch = GpuWatch()
    looked(watch)
    assert watch.use.reading is not None
    assert "Not Found" in looked(watch, "GPU-other")
    assert watch.use == NO_USE
    looked(watch)
    assert watch.use.reading is not None
    assert looked(watch, "GPU-other") == ""
    assert watch.look("", idle=True) == ""
    assert watch.use == NO_USE


def test_a_driver_that_hangs_holds_nothing_up(nvml: FakeNvml) -> None:
    free = Event()

    class Hanging(Counters):
        def read(self) -> Reading:
            free.wait(60)
            return super().read()

    watch, begun = GpuWatch(Hanging), monotonic()
    for _ in range(20):
        watch.look(GPU, idle=True)
    assert monotonic() - begun < 30
    assert nvml.calls.count("nvmlInit") <= 1
    assert watch._thread is not None
    assert watch._thread.daemon
    free.set()
    looked(watch)
    assert watch.use.reading is not None
