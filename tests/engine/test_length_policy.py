"""Where drafts end, by simulation: models whose probabilities are true, or are not, at known costs."""

import random
from collections.abc import Callable

import pytest

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.length_policy import UNSURE, LengthPolicies, LengthPolicy
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.strategy import MAX_DRAFT_LENGTH

SURE, TORN = 0.985, 0.6
CHECK_MS = 1.0


class World:
    """Stretches of text that a model is sure or torn about; tokens stay as often as `stays` says of a probability."""

    def __init__(
        self,
        draft_ms: float,
        row_ms: float,
        stays: Callable[[float], float] = lambda p: p,
        at_once: bool = False,
        fixed: float = 0.0,
    ) -> None:
        self.fixed = fixed
        self.draft_ms, self.row_ms, self.stays = draft_ms, row_ms, stays
        self.chance = random.Random(4)
        self.costs = StepCosts(lambda: 0.0)
        self.stop = LengthPolicy("draft", self.costs, at_once)
        self.torn = False

    def step(self, ends: Callable[[float], bool]) -> tuple[int, float]:
        """Tokens and milliseconds of one step, after which the costs and the stop are told."""
        probabilities: list[float] = []
        for _ in range(MAX_DRAFT_LENGTH):
            if self.chance.random() < 0.2:
                self.torn = not self.torn
            probabilities.append(TORN if self.torn else SURE)
            if ends(probabilities[-1]):
                break
        accepted = 0
        while accepted < len(probabilities) and self.chance.random() < self.stays(probabilities[accepted]):
            accepted += 1
        draft_ms = self.fixed + self.draft_ms * len(probabilities)
        verify_ms = CHECK_MS + self.row_ms * len(probabilities)
        tested = min(accepted + 1, len(probabilities))
        tokens = (0,) * (accepted + 1)
        path = tuple(range(1, accepted + 1))
        drafts = (0,) * len(probabilities)
        outcome = StepOutcome(tokens, drafts, tuple(probabilities), tested, path, draft_ms, verify_ms)
        self.costs.add("draft", outcome)
        self.stop.observe(outcome)
        return len(tokens), draft_ms + verify_ms

    def speed(self, steps: int, least: float | None = None) -> float:
        """Tokens a millisecond; with `least` drafts end with a token that got less."""
        tokens = ms = 0.0
        for _ in range(steps):
            self.stop.begin(timed=True)
            more, took = self.step(self.stop.ends if least is None else lambda p: p < least)
            tokens, ms = tokens + more, ms + took
        return tokens / ms


@pytest.mark.parametrize(("draft_ms", "row_ms"), [(0.02, 0.01), (0.1, 0.05), (0.3, 0.2), (0.6, 0.1), (0.05, 0.4)])
def test_it_is_about_as_good_as_the_best_constant(draft_ms: float, row_ms: float) -> None:
    constants = [World(draft_ms, row_ms).speed(2000, least) for least in (0.0, UNSURE, 1.0)]
    assert max(constants) > 1.05 * min(constants)
    assert World(draft_ms, row_ms).speed(2000) >= 0.92 * max(constants)


def test_what_a_draft_takes_whatever_its_length_ends_none_sooner() -> None:
    """A first token that is dear must not keep drafts at one token, which would make each token as dear."""

    def speed(fixed: float, constant: float | None = None) -> float:
        world = World(0.05, 0.05, fixed=fixed)
        world.costs.expect({1: 1.0}, {"draft": {1: fixed + 0.05, 4: fixed + 0.2}})
        return world.speed(2000, constant)

    for fixed in (0.0, 0.5, 1.5):
        assert speed(fixed) >= 0.92 * max(speed(fixed, least) for least in (0.0, UNSURE))


def test_dear_drafts_end_sooner() -> None:
    lengths = []
    for draft_ms in (0.02, 0.5):
        world = World(draft_ms, 0.05)
        world.speed(200)
        world.stop.begin(timed=True)
        lengths.append(sum(not world.stop.ends(TORN) for _ in range(MAX_DRAFT_LENGTH)))
    assert lengths[0] > lengths[1] == 0


def test_dear_drafts_that_are_made_in_one_pass_end_no_sooner() -> None:
    lengths = []
    for at_once in (False, True):
        world = World(0.5, 0.01, at_once=at_once)
        world.speed(200)
        world.stop.begin(timed=True)
        lengths.append(sum(not world.stop.ends(SURE) for _ in range(MAX_DRAFT_LENGTH)))
    assert lengths[1] > lengths[0] + 3


def test_time_is_worth_what_plain_steps_would_bring_of_it() -> None:
    """Drafts that are far too long make steps bring little a millisecond; a dear token does not pay for all that."""
    world = World(0.6, 0.1)
    world.speed(100, least=0.0)
    assert world.stop.begin(timed=True).ends(TORN)


def test_what_a_model_is_sure_of_in_vain_ends_a_draft() -> None:
    world = World(0.3, 0.1, stays=lambda _: 0.1)
    world.speed(100)
    assert world.stop.begin(timed=True).ends(SURE)


def test_where_the_text_depends_on_the_draft_nothing_measured_counts() -> None:
    world = World(0.6, 0.4, stays=lambda _: 0.1)
    world.speed(100)
    stop = world.stop.begin(timed=False)
    assert not stop.ends(UNSURE)
    assert stop.ends(UNSURE - 0.01)


def test_only_the_family_that_drafted_learns() -> None:
    costs = StepCosts(lambda: 0.0)
    stops = LengthPolicies(costs)
    refused = StepOutcome((0,), (0,) * 4, (SURE,) * 4, 1, (), 1.0, 1.0)
    for _ in range(50):
        stops.start()
        stops.begin("draft", timed=True)
        costs.add("draft", refused)
        stops.observe(refused)
    assert stops.begin("draft", timed=True).ends(SURE)
    assert not stops.begin("swift", timed=True).ends(SURE)
    stops.forget()
    assert not stops.begin("draft", timed=True).ends(SURE)


def test_what_was_copied_tells_nothing_of_the_model() -> None:
    """Of four drafts the first two were copied and stayed; the model learns from the third, which did not."""
    joint, alone = (LengthPolicy("draft", StepCosts(lambda: 0.0)) for _ in range(2))
    joint.observe(StepOutcome((0,) * 3, (0,) * 4, (None, None, SURE, SURE), 3, (1, 2), 1.0, 1.0, switch=2))
    alone.observe(StepOutcome((0,), (0,) * 2, (SURE, SURE), 1, (), 1.0, 1.0))
    assert joint._stay.values == alone._stay.values
    assert joint._follow.values == alone._follow.values


def test_it_can_be_switched_off_to_measure() -> None:
    stops = LengthPolicies(StepCosts(lambda: 0.0))
    stops.off = True
    assert not stops.begin("draft", timed=True).ends(0.0)
