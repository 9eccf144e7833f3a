"""The bandwidth of memory: of given times, and of this machine."""

import os
from itertools import count

import pytest

from specchat.engine.hardware import bandwidth
from specchat.engine.hardware.bandwidth import processor_bandwidth


@pytest.mark.parametrize("threads", [1, 2])
def test_reads_among_the_fastest_count_on_the_better_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """A single quick one may come from a cache, and slow ones wait for other programs."""
    monkeypatch.setattr(bandwidth, "MEBIBYTES", 2)
    monkeypatch.setattr(bandwidth, "PART_MEBIBYTES", 1)
    monkeypatch.setattr(bandwidth, "SECONDS", 100.0)
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    now, calls, summed = 0.0, count(), bandwidth._summed
    together = False

    def batch(*parts: object) -> None:
        nonlocal together
        together = True
        summed(*parts)  # type: ignore[arg-type]

    monkeypatch.setattr(bandwidth, "_summed", batch)

    def clock() -> float:
        """Reads take two seconds, one in eight a half, and one of all a tenth; two at once eight times as long."""
        nonlocal now
        call = next(calls)
        took = 0.1 if call in (20, 21) else 0.5 if call % 16 < 2 else 2.0
        now += took * (8 if together else 1)
        return now

    assert processor_bandwidth(clock) == pytest.approx((1 << 20) / 0.5)
    assert together == (threads == 2)


def test_this_machines_memory_is_measured() -> None:
    assert 1e8 < processor_bandwidth() < 1e13
