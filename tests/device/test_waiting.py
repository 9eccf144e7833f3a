"""How the host waits for the end of a pass: it spins for a bounded time, then sleeps."""

from dataclasses import dataclass

import pytest

from specchat.engine.device.clock import SPIN_S, SpinWait

STEP_S = 10e-6


@dataclass
class Device:
    """An event and a clock: a query takes STEP_S, and the work before the event is done after `left` seconds."""

    now: float = 0.0
    left: float = 0.0
    queries: int = 0
    slept: int = 0
    fails: str = ""

    def work(self, seconds: float) -> None:
        self.left, self.queries, self.slept = self.now + seconds, 0, 0

    def query(self) -> bool:
        if self.fails == "query":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.queries += 1
        self.now += STEP_S
        return self.now >= self.left

    def synchronize(self) -> None:
        if self.fails == "synchronize":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.slept += 1
        self.now = max(self.now, self.left)


def waited(device: Device, waiting: SpinWait, seconds: float) -> tuple[int, int]:
    """Queries and sleeps of a wait for work of so many seconds."""
    device.work(seconds)
    waiting.wait(device)
    assert device.now >= device.left, "the wait ended before the work"
    return device.queries, device.slept


def test_what_is_done_already_is_not_waited_for() -> None:
    device = Device()
    waiting = SpinWait(lambda: device.now)
    assert waited(device, waiting, 0.0) == (1, 0)


def test_a_wait_that_is_as_short_as_the_last_one_spins_to_its_end() -> None:
    device = Device()
    waiting = SpinWait(lambda: device.now)
    assert waited(device, waiting, 10 * STEP_S) == (1, 1), "nothing is known before the first wait"
    assert waited(device, waiting, 9.5 * STEP_S) == (10, 0)


def test_a_spin_ends_in_sleep_when_it_took_as_long_as_the_last_wait() -> None:
    device = Device()
    waiting = SpinWait(lambda: device.now)
    waited(device, waiting, 5 * STEP_S)
    queries, slept = waited(device, waiting, 100.0)
    assert (queries <= 6, slept) == (True, 1)


def test_after_a_long_wait_the_next_one_does_not_spin() -> None:
    device = Device()
    waiting = SpinWait(lambda: device.now)
    waited(device, waiting, SPIN_S + 2 * STEP_S)
    assert waited(device, waiting, 3 * STEP_S) == (1, 1)
    assert waited(device, waiting, 2.5 * STEP_S) == (3, 0), "and spins again after a short one"


@pytest.mark.parametrize("place", ["query", "synchronize"])
def test_an_error_of_the_device_comes_out(place: str) -> None:
    device = Device(fails=place)
    waiting = SpinWait(lambda: device.now)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        waited(device, waiting, 1.0)
