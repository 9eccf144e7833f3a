"""The clock of a step, on a device whose events are not here."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from specchat.engine.device.clock import Clock

THERE = torch.device("cuda", 1)


@dataclass
class FakeEvent:
    """torch.cuda.Event; one second passes from mark to mark."""

    enable_timing: bool = False
    blocking: bool = False
    at: float = 0.0
    now: ClassVar[float] = 0.0

    def record(self, stream: object) -> None:
        assert stream == f"the stream of {THERE}", "events are recorded on the current GPU's stream otherwise"
        FakeEvent.now += 1.0
        self.at = FakeEvent.now

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        assert self.blocking, "a core is kept busy while the device works"

    def elapsed_time(self, later: "FakeEvent") -> float:
        assert self.enable_timing
        return 1e3 * (later.at - self.at)


def test_waiting_for_the_device_leaves_the_core_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", "the stream of {}".format)
    clock = Clock(THERE)
    clock.start()
    clock.drafted()
    clock.verified()
    assert clock.wait() == (1000.0, 1000.0)
