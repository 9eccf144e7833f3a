"""What of a step's time is neither drafting nor verifying."""

import pytest

from specchat.engine.api import Step
from specchat.engine.decoding.meter import Meter
from specchat.engine.decoding.stepped import Stepped


def test_what_a_step_waited_for_a_processor_is_told_apart() -> None:
    meter = Meter(1, 0)
    elapsed = ran = 0.0
    for other, waited in ((1.0, 0.0), (2.0, 4.0), (0.5, 0.0), (1.0, 9.0)):
        stepped = Stepped((7,), (), (), 0, (), 3.0, 5.0)
        ran += 8.0 + other
        elapsed += 8.0 + other + waited
        found = meter.other_ms(stepped, elapsed, ran)
        assert found == pytest.approx((other, waited))
        meter.tally.add(Step(1, (), 0, 0, 0, 1, 3.0, 5.0, found[0], 0, "plain", waited_ms=found[1]))
    assert (meter.tally.ran_ms, meter.tally.milliseconds) == pytest.approx((ran, elapsed))
    assert meter.stats().milliseconds == pytest.approx(elapsed)
