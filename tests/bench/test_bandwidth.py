"""The bandwidth of memory: of given times, and of this machine."""

from itertools import count

import pytest
import torch

from specchat.bench import bandwidth
from specchat.bench.bandwidth import read_bandwidth

CPU = torch.device("cpu")


@pytest.mark.parametrize("threads", [1, 2])
def test_reads_among_the_fastest_count_on_the_better_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """A single quick one may come from a cache, and slow ones wait for other programs."""
    monkeypatch.setattr(bandwidth, "MEBIBYTES", 1)
    monkeypatch.setattr(bandwidth, "SECONDS", 100.0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    now, calls = 0.0, count()

    def clock() -> float:
        """Reads take two seconds, one in eight a half, and one of all a tenth; on two threads four times as long."""
        nonlocal now
        call = next(calls)
        took = 0.1 if call in (20, 21) else 0.5 if call % 16 < 2 else 2.0
        now += took * (4 if torch.get_num_threads() == 2 else 1)
        return now

    try:
        assert read_bandwidth(CPU, clock) == pytest.approx((1 << 20) / 0.5)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_this_machines_memory_is_measured() -> None:
    assert 1e8 < read_bandwidth(CPU) < 1e13
