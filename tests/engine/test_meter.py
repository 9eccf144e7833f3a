"""What of a step's time is neither drafting nor verifying."""

import pytest

from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.protocol.events import Step
from specchat.engine.reply.reply import Meter


def test_what_a_step_waited_for_a_processor_is_told_apart() -> None:
    meter = Meter(1, 0.0)
    elapsed = ran = 0.0
    for other, waited in ((1.0, 0.0), (2.0, 4.0), (0.5, 0.0), (1.0, 9.0)):
        outcome = StepOutcome((7,), (), (), 0, (), 3.0, 5.0)
        ran += 8.0 + other
        elapsed += 8.0 + other + waited
        found = meter.other_ms(outcome, elapsed, ran)
        assert found == pytest.approx((other, waited))
        meter.tally.add(Step(1, (), 0, 0, 0, 1, 3.0, 5.0, found[0], 0, "plain", waited_ms=found[1]))
    assert (meter.tally.ran_ms, meter.tally.milliseconds) == pytest.approx((ran, elapsed))
    assert meter.stats().milliseconds == pytest.approx(elapsed)


def test_speed_is_that_of_the_clock_though_steps_overlap() -> None:
    """The second step ran, for 2 ms, while the host was busy with the first."""
    meter = Meter(prompt_tokens=5, started=0.0)
    one = StepOutcome((1,), (), (), 0, (), 1.0, 1.0)
    others = []
    for elapsed in (5.0, 5.5, 9.0, 12.0):
        others.append(meter.other_ms(one, elapsed, elapsed))
        meter.tally.add(Step(1, (), 0, 0, 0, 1, 1.0, 1.0, others[-1][0], 6, "plain"))
    assert others == [(3.0, 0.0), (0.0, 0.0), (0.0, 0.0), (1.0, 0.0)]
    assert meter.stats().tokens_per_second == 1e3 * 4 / 12.0
