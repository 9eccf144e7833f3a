"""Plain decoding's speed: from plain replies that are long enough, of greedy and of drawn tokens each."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.tally import Tally
from specchat.engine.reply.measure import REPLY_TOKENS
from specchat.engine.reply.plain_speed import WEIGHT, PlainSpeed
from tests.fake import INFO

GREEDY, DRAWN = Sampling(), Sampling(temperature=0.7)


def seen(speed: PlainSpeed, tokens_per_second: float, sampling: Sampling, **tally: int) -> tuple[float, float]:
    """What is told after a reply, of greedy and drawn tokens."""
    cast("Any", speed).yardstick = SimpleNamespace(usual_speed=tokens_per_second, bare_share=1.0)
    speed.observe(replace(Tally(steps=9, tokens=REPLY_TOKENS), **cast("Any", tally)), sampling)
    info = speed.described(INFO)
    return info.plain.tokens_per_second, info.plain.sampled_tokens_per_second


def test_each_plain_reply_counts_by_half_and_for_its_kind_alone() -> None:
    speed = PlainSpeed(StepCosts())
    assert seen(speed, 100.0, GREEDY) == (100.0, 0.0)
    assert seen(speed, 60.0, GREEDY) == (100.0 - WEIGHT * 40.0, 0.0)
    assert seen(speed, 50.0, DRAWN) == (80.0, 50.0)


@pytest.mark.parametrize(("repeated", "bare"), [(0, 8.0), (8, 7.0)])
def test_a_repeated_step_is_compared_with_those_after_plain_replies(repeated: int, bare: float) -> None:
    """They take less than a step with its text: as the target's pass, or less. Here it is a fifth slower than then."""
    now = [0.0]
    costs = StepCosts(lambda: now[0])
    speed = PlainSpeed(costs)
    for _ in range(REPLY_TOKENS):
        now[0] += 0.01
        costs.add("plain", StepOutcome((0,), (), (), 0, (), 0.0, 8.0))
        speed.yardstick.add("plain", StepOutcome((0,), (), (), 0, (), 0.0, 8.0))
    for _ in range(repeated):
        speed.yardstick.add_repeated(StepOutcome((0,), (), (), 0, (), 0.0, bare))
    speed.observe(Tally(steps=9, tokens=REPLY_TOKENS), GREEDY)
    speed.begin(100.0)
    drafted = StepOutcome((0, 0), (0,), (), 1, (1,), 0.0, 10.0, strategy="draft")
    for _ in range(8):
        now[0] += 0.012
        costs.add("draft", drafted)
        speed.yardstick.add("draft", drafted)
    for _ in range(8):
        speed.yardstick.add_repeated(StepOutcome((0,), (), (), 0, (), 0.0, 1.2 * bare))
    (known,) = speed.yardstick.end()
    assert known.token_ms == pytest.approx(12.0, rel=0.05)


def test_noise_of_repeated_steps_does_not_move_their_mean() -> None:
    """Steps that a busy machine makes longer and shorter by turns: the lowest ones must not count more."""
    begun: list[float] = []
    speed = PlainSpeed(StepCosts())
    yardstick = SimpleNamespace(usual_speed=100.0, bare_share=0.0, begin=lambda _, share: begun.append(share))
    cast("Any", speed).yardstick = yardstick
    for share in [0.6, 0.9] * 50:
        yardstick.bare_share = share
        speed.observe(Tally(steps=9, tokens=REPLY_TOKENS), GREEDY)
        speed.begin(100.0)
    assert sum(begun[-10:]) / 10 == pytest.approx(0.735, rel=0.02)


@pytest.mark.parametrize("tally", [{"drafted": 1}, {"tokens": REPLY_TOKENS - 1}])
def test_a_short_reply_and_one_with_drafts_tell_nothing(tally: dict[str, int]) -> None:
    assert seen(PlainSpeed(StepCosts()), 100.0, GREEDY, **tally) == (0.0, 0.0)


def test_the_load_while_loading_is_taken_out_and_bare_steps_count_where_no_reply_did() -> None:
    speed = PlainSpeed(StepCosts())
    speed.fall_back(200.0)
    assert speed.described(INFO).plain.tokens_per_second == 200.0
    speed.forget()
    seen(speed, 100.0, GREEDY)
    speed.settle([(0.5, 1.0)])
    speed.fall_back(300.0)
    assert speed.described(INFO).plain.tokens_per_second == 200.0
