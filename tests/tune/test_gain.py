"""The gain between two speeds, and its interval."""

import pytest

from specchat.bench.interleaved import ratio_interval
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.tune.gain import HeldOutSpeed, _placed, gain


def speed(*times: float) -> HeldOutSpeed:
    return HeldOutSpeed("draft", {str(n): one for n, one in enumerate(times)}, 100.0)


def test_an_interval_of_ratios() -> None:
    mean, low, high = ratio_interval([0.0, 0.2])
    assert mean == pytest.approx(1.10517, abs=1e-5)
    assert (low, high) == (pytest.approx(0.90847, abs=1e-4), pytest.approx(1.34447, abs=1e-4))


def test_a_gain_is_sure_beyond_its_interval() -> None:
    before = speed(*[2.0] * 12)
    steady = gain(before, speed(*(2.2 + 0.01 * n for n in range(12))))
    assert steady.sure
    assert 1.1 < steady.low < steady.times < steady.high < 1.2
    noisy = gain(before, speed(*(1.0 if n % 2 else 6.0 for n in range(12))))
    assert noisy.times > 1.2
    assert not noisy.sure
    assert not gain(speed(1.0), speed(2.0)).sure


def test_the_second_side_runs_where_the_first_one_does() -> None:
    """What is free may change meanwhile."""
    anywhere, here = (PairSpec("p", "P", ModelSource(path="t", device=device)) for device in ("auto", "cpu"))
    assert _placed(anywhere, "cuda").target.device == "cuda"
    assert _placed(anywhere, "cpu").target.device == "cpu"
    assert _placed(here, "cuda") == here
