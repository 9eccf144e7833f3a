"""The bandwidth of memory: of given times, and about the same twice."""

from itertools import count

import pytest
import torch

from specchat.bench import bandwidth
from specchat.bench.bandwidth import read_bandwidth

CPU = torch.device("cpu")


def test_the_fastest_read_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "MEBIBYTES", 1)
    monkeypatch.setattr(bandwidth, "SECONDS", 0.0)
    reads = (t for start in count(1) for t in (10.0 * start, 10.0 * start + (0.5 if start == 3 else 2.0)))
    times = iter([0.0, *(next(reads) for _ in range(8)), 100.0])
    assert read_bandwidth(CPU, lambda: next(times)) == pytest.approx((1 << 20) / 0.5)


@pytest.mark.timed
def test_two_measurements_agree() -> None:
    first, second = read_bandwidth(CPU), read_bandwidth(CPU)
    assert 1e8 < first < 1e13
    assert 1 / 4 < first / second < 4
