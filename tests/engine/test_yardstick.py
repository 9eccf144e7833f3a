"""Plain decoding's time while the load changes: simulated machines, of which the truth is known."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp

import pytest

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.plain_ratio import PlainRatio
from specchat.engine.decoding.yardstick import EVENT, LAST_MS, SHARE, Yardstick
from specchat.engine.protocol.comparison import Comparison
from specchat.engine.protocol.events import PlainKnown, Step

PLAIN_MS, DRAFT_MS, VERIFY_MS, DRAFTED = 10.0, 1.0, 14.0, 4
"""Of a machine that is not slow."""
Slow = Callable[[float], tuple[float, float]]
"""Times as slow as usual that drafted and plain steps are, by the seconds that passed."""


@dataclass
class Machine:
    """Writes steps that draft, and plain ones where they are due."""

    slow: Slow
    noise: random.Random = field(default_factory=lambda: random.Random(0))
    accepted: int = 3
    ms: float = 1.0
    """Times as long as the figures above that its steps take."""
    cold: float = 1.0
    """Times as long that the two plain steps after a draft take."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.costs = StepCosts(lambda: self.seconds)
        drafts = {1: self.ms * DRAFT_MS, DRAFTED: self.ms * DRAFTED * DRAFT_MS}
        self.costs.expect({1: self.ms * PLAIN_MS, 1 + DRAFTED: self.ms * VERIFY_MS}, {"draft": drafts})
        self.yardstick = Yardstick(self.costs)
        self.steps: list[Step] = []
        self.truth_ms = 0.0
        """What plain decoding would have taken for the tokens so far."""
        self._since_draft = 2

    def reply(self, steps: int) -> Comparison:
        self.costs.begin()
        self.yardstick.begin(self.ms * PLAIN_MS)
        made = [self.step() for _ in range(steps)]
        made[-1] = replace(made[-1], plain_known=self.repeated())
        self.steps += made
        return Comparison.of(made)

    def repeated(self) -> tuple[PlainKnown, ...]:
        """What plain steps tell that are repeated after a reply."""
        self.repeats = 0
        while self.yardstick.repeats():
            cold = self.cold if self._since_draft < 2 else 1.0
            ms = self.ms * PLAIN_MS * self.slow(self.seconds)[1] * cold * self.noise.lognormvariate(0.0, 0.05)
            self._since_draft += 1
            self.seconds += ms / 1e3
            self.repeats += 1
            outcome = StepOutcome((0,), (), (), 0, (), 0.0, ms)
            self.costs.add("plain", outcome)
            self.yardstick.add_repeated(outcome)
        return self.yardstick.end()

    def step(self) -> Step:
        of_drafts, of_plain = self.slow(self.seconds)
        slipped = self.yardstick.due()
        wobble = self.noise.lognormvariate(0.0, 0.05)
        drafts = () if slipped else (0,) * DRAFTED
        kept = 0 if slipped else self.accepted
        wobble *= self.ms
        draft_ms = 0.0 if slipped else DRAFTED * DRAFT_MS * of_drafts * wobble
        plain_ms = PLAIN_MS * of_plain * (self.cold if self._since_draft < 2 else 1.0)
        verify_ms = (plain_ms if slipped else VERIFY_MS * of_drafts) * wobble
        self._since_draft = self._since_draft + 1 if slipped else 0
        name, path = "plain" if slipped else "draft", tuple(range(1, kept + 1))
        outcome = StepOutcome((0,) * (kept + 1), drafts, (), len(drafts), path, draft_ms, verify_ms, strategy=name)
        self.seconds += (draft_ms + verify_ms) / 1e3
        self.costs.add(name, outcome)
        measured = self.yardstick.add(name, outcome)
        self.truth_ms += self.ms * PLAIN_MS * of_plain * (kept + 1)
        return Step(
            1, (), len(drafts), len(drafts), kept, kept + 1, draft_ms, verify_ms, 0.0, 0, "draft",
            usual_ms=measured.usual_ms, plain_ms=measured.plain_ms * (kept + 1), plain_error=measured.plain_error,
        )  # fmt: skip

    @property
    def truth(self) -> float:
        return self.truth_ms / sum(step.milliseconds for step in self.steps)


def steady(_: float) -> tuple[float, float]:
    return 1.0, 1.0


def changing(seconds: float) -> tuple[float, float]:
    """Twice and three times as slow for two seconds of four."""
    times = (1.0, 3.0)[int(seconds / 2) % 2]
    return times, times


def overall(machine: Machine) -> float:
    found = Comparison.of(machine.steps).estimate
    assert found is not None
    return found.times


@pytest.mark.parametrize(("slow", "told"), [(steady, 20), (changing, 3)])
def test_what_slows_everything_alike_moves_no_multiplier(slow: Slow, told: int) -> None:
    machine = Machine(slow)
    shown = [found for _ in range(20) if (found := machine.reply(40).speedup) is not None]
    assert len(shown) >= told
    for found in shown:
        assert found.times == pytest.approx(4 * PLAIN_MS / (DRAFTED * DRAFT_MS + VERIFY_MS), rel=0.15)
    assert overall(machine) == pytest.approx(machine.truth, rel=0.06)


def test_while_nothing_tells_what_slows_plain_decoding_no_multiplier_is_shown() -> None:
    """What plain steps told before a machine turned slow is not what they take now."""
    machine = Machine(lambda seconds: (1.5, 1.5) if seconds > 60.0 else (1.0, 1.0))
    machine.reply(100)
    while machine.seconds < 60.0:
        assert machine.reply(20).speedup is not None
    told = [machine.reply(20).speedup is not None for _ in range(60)]
    assert not any(told[1:4])
    assert all(told[40:])


@pytest.mark.parametrize("part", [0.6, 1.6])
def test_what_slows_plain_decoding_otherwise_is_told_by_plain_steps(part: float) -> None:
    """Other programs came while drafts were written: after some seconds the multiplier is that of now."""
    machine = Machine(lambda seconds: (1.4, 1.4 * part) if seconds > 5.0 else (1.0, 1.0))
    while machine.seconds < 60.0:
        last = machine.reply(100)
    assert last.speedup is not None
    now = part * 4 * PLAIN_MS / (DRAFTED * DRAFT_MS + VERIFY_MS)
    assert last.speedup.times == pytest.approx(now, rel=0.15)


def test_what_was_known_wrong_when_a_pair_was_loaded_is_told_right_soon_and_for_good() -> None:
    """Steps that draft take a fifth longer than was measured then, and plain ones as long."""
    machine = Machine(lambda _: (1.2, 1.0))
    for _ in range(10):
        last = machine.reply(100)
    now = 4 * PLAIN_MS / (1.2 * (DRAFTED * DRAFT_MS + VERIFY_MS))
    assert last.speedup is not None
    assert last.speedup.times == pytest.approx(now, rel=0.06)
    machine.seconds += 600.0
    after = machine.reply(40).estimate
    assert after is not None
    assert after.times == pytest.approx(now, rel=0.1)  # its own first plain steps weigh most


@pytest.mark.parametrize("ms", [0.07, 0.15])
@pytest.mark.parametrize("part", [0.7, 1.3])
def test_quick_plain_steps_count_but_for_the_first_after_a_draft(part: float, ms: float) -> None:
    """They count whether they are quicker or slower than was thought: else the slow ones alone would be known."""
    machine = Machine(lambda _: (1.0, part), ms=ms, cold=1.3)
    for _ in range(60):
        last = machine.reply(100)
    assert last.speedup is not None
    assert last.speedup.times == pytest.approx(part * 4 * PLAIN_MS / (DRAFTED * DRAFT_MS + VERIFY_MS), rel=0.08)


def test_the_first_reply_of_a_pair_has_a_multiplier() -> None:
    machine = Machine(steady)
    assert machine.reply(40).speedup is not None


def test_the_first_short_reply_on_a_rested_processor_has_a_multiplier() -> None:
    """Plain steps among the first ones, which are slow, would tell little, and no others would follow."""

    def rested(seconds: float) -> tuple[float, float]:
        times = 1.0 + 0.7 * exp(-seconds / 0.01)
        return 1.2 * times, 1.1 * times

    shown = 0
    for seed in range(20):
        machine = Machine(rested, random.Random(seed), ms=0.07, cold=1.3)
        made = machine.reply(30)
        if made.speedup is not None:
            shown += 1
            plain = 0.0
            for _ in range(made.tokens):
                plain += 0.07 * PLAIN_MS / 1e3 * rested(plain)[1]
            took = sum(step.milliseconds for step in machine.steps)
            assert made.speedup.times == pytest.approx(1e3 * plain / took, rel=0.15)
    assert shown >= 16


def test_what_one_reply_tells_of_plain_decoding_counts_in_the_next() -> None:
    """The first one contradicts what was measured at loading: the truth might be either."""
    shown = []
    for seed in range(20):
        machine = Machine(lambda _: (1.0, 1.4), random.Random(seed), ms=0.07, cold=1.3)
        shown.append([machine.reply(14).speedup for _ in range(4)])
    assert not any(first for first, *_ in shown)
    last = [each[-1] for each in shown if each[-1] is not None]
    assert len(last) >= 19
    for found in last:
        assert found.times == pytest.approx(1.4 * 4 * PLAIN_MS / (DRAFTED * DRAFT_MS + VERIFY_MS), rel=0.15)


def test_an_interval_holds_the_truth_though_plain_steps_vary_between_replies() -> None:
    """Each reply's own plain steps are alike, so that they alone seem to know its time."""
    chance, held, told = random.Random(5), 0, 0
    machine = Machine(steady, random.Random(1))
    for _ in range(60):
        part = chance.lognormvariate(0.0, 0.08)
        machine.slow = lambda _, part=part: (1.0, part)
        if (found := machine.reply(600).speedup) is not None:
            told += 1
            held += found.low <= 4 * PLAIN_MS / (DRAFTED * DRAFT_MS + VERIFY_MS) <= found.high
    assert told == 60
    assert held >= 0.95 * told


def test_plain_decoding_would_send_an_event_a_token() -> None:
    """Its events are smaller than those of a draft."""
    found = []
    for sent_ms in (0.0, 4.0):
        machine = Machine(steady)
        for _ in range(2):
            machine.yardstick.begin(PLAIN_MS)
            for _ in range(20):
                outcome = StepOutcome((0,) * 4, (0,) * DRAFTED, (), 0, (), 0.0, VERIFY_MS, strategy="draft")
                machine.seconds += (outcome.verify_ms + sent_ms) / 1e3
                machine.costs.add("draft", outcome)
                measured = machine.yardstick.add("draft", outcome, sent_ms)
        found.append(measured.plain_ms)
    assert found[1] - found[0] == pytest.approx(EVENT * 4.0, rel=0.1)


def test_repeated_steps_end_where_their_time_is_known_or_spent() -> None:
    """A slow model repeats none after a short reply, and a reply of next to no drafts is compared with nothing."""
    machine = Machine(steady, ms=0.07, cold=1.3)
    machine.reply(12)
    assert 0 < machine.repeats * 0.07 * PLAIN_MS <= LAST_MS
    machine.reply(2)
    assert machine.repeats == 0
    for ms, steps in ((10.0, 4), (0.5, 12)):
        slow = Machine(steady, ms=ms)
        slow.reply(steps)
        assert slow.repeats == 0


def test_a_slow_model_ends_a_long_reply_at_once() -> None:
    """Half a second a step: what a few more would tell is not worth the wait for the last words."""
    slow, late = Machine(steady, ms=50.0), list[float]()
    for _ in range(4):
        slow.reply(100)
        late.append(slow.yardstick._reply.repeated.spent_ms)
    assert max(late) <= 500.0


@pytest.mark.parametrize(
    ("when", "most", "steps"),
    [
        ("falls", 3.0, 30),
        ("falls", 3.0, 80),
        ("before the end", 2.0, 30),
        ("before the end", 3.0, 80),
        ("at the end", 1.5, 14),
        ("at the end", 3.0, 14),
    ],
)
def test_what_is_repeated_under_another_load_than_the_drafts_shows_no_multiplier(
    when: str, most: float, steps: int
) -> None:
    """Not even in a reply of some milliseconds."""
    lasts = steps * 0.07 * (DRAFTED * DRAFT_MS + VERIFY_MS) / 1e3

    def slow(seconds: float) -> tuple[float, float]:
        part = seconds / lasts
        times = {
            "falls": most - (most - 1.0) * min(1.0, part / most),
            "before the end": most if part < 0.7 * most else 1.0,
            "at the end": 1.0 if part < 1.0 else most,
        }[when]
        return times, times

    for seed in range(10):
        shown = Machine(slow, random.Random(seed), ms=0.07, cold=1.3).reply(steps).speedup
        if shown is not None:
            assert shown.times == pytest.approx(4 * PLAIN_MS / (DRAFTED * DRAFT_MS + VERIFY_MS), rel=0.25)


@pytest.mark.parametrize("ms", [4 * PLAIN_MS, 9 * PLAIN_MS])
def test_nothing_is_repeated_long_after_the_last_draft(ms: float) -> None:
    """The load of the drafts is then not that of now; the last one's sums may have faded to nothing."""
    machine = Machine(steady)
    machine.reply(40)
    machine.yardstick.begin(PLAIN_MS)
    for _ in range(20):
        machine.step()
    plain = StepOutcome((0,), (), (), 0, (), 0.0, ms)
    for _ in range(1200):
        machine.seconds += ms / 1e3
        machine.costs.add("plain", plain)
        machine.yardstick.add("none plain", plain)
    machine.repeated()
    assert machine.repeats == 0


def test_what_is_repeated_counts_for_every_strategy_of_its_reply() -> None:
    """Each by the load that its own drafts had."""
    machine = Machine(steady, ms=0.07)
    machine.reply(30)
    machine.yardstick.begin(0.7)
    for strategy in ("one", "two"):
        for _ in range(6):
            slow = 2.0 if strategy == "two" else 1.0
            outcome = StepOutcome((0,), (0,) * DRAFTED, (), 0, (), 0.0, slow * 0.07 * VERIFY_MS, strategy=strategy)
            machine.seconds += outcome.verify_ms / 1e3
            machine.costs.add("draft", outcome)
            machine.yardstick.add(f"auto {strategy}", outcome)
    one, two = machine.repeated()
    assert (one.strategy, two.strategy) == ("one", "two")
    assert 1.5 < one.token_ms / two.token_ms < 2.5


def test_plain_steps_of_a_reply_count_for_every_strategy_before_them() -> None:
    """`auto` tries some strategies once, and plain steps come later; then nothing is repeated."""
    machine = Machine(steady)
    machine.yardstick.begin(PLAIN_MS)
    tried = [("one", 2.0), ("two", 1.0), ("two", 1.0), ("two", 1.0)]
    for strategy, slow in [*tried, *[("plain", 1.1)] * 12, ("two", 1.0), *[("plain", 1.1)] * 12]:
        drafts = () if strategy == "plain" else (0,) * DRAFTED
        draft_ms, verify_ms = slow * DRAFT_MS * len(drafts), slow * (VERIFY_MS if drafts else PLAIN_MS)
        outcome = StepOutcome((0,), drafts, (), len(drafts), (), draft_ms, verify_ms, strategy=strategy)
        machine.seconds += (draft_ms + verify_ms) / 1e3
        machine.costs.add("draft" if drafts else "plain", outcome)
        machine.yardstick.add(f"auto {strategy}", outcome)
    one, two = machine.repeated()
    assert machine.repeats == 0
    assert (one.strategy, two.strategy) == ("one", "two")
    assert two.token_ms == pytest.approx(1.1 * PLAIN_MS, rel=0.05)
    assert 1.5 < two.token_ms / one.token_ms < 2.2
    assert one.error == two.error < 0.07


def test_load_that_changed_between_the_strategies_of_a_reply_is_no_cost_of_theirs() -> None:
    """Plain steps of other replies tell plain decoding's time for the last one, whose load the others did not have."""
    machine = Machine(steady)
    for _ in range(4):
        machine.reply(40)
    machine.yardstick.begin(PLAIN_MS)
    for strategy, slow in [("one", 1.5)] * 10 + [("two", 1.0)] * 10:
        drafts = (0,) * DRAFTED
        draft_ms, verify_ms = slow * DRAFT_MS * DRAFTED, slow * VERIFY_MS
        outcome = StepOutcome((0,), drafts, (), DRAFTED, (), draft_ms, verify_ms, strategy=strategy)
        machine.seconds += (draft_ms + verify_ms) / 1e3
        machine.costs.add("draft", outcome)
        machine.yardstick.add("draft", outcome)
    found = {known.strategy: known.token_ms for known in machine.yardstick.end()}
    assert found == {"two": pytest.approx(PLAIN_MS, rel=0.05)}


def test_a_short_reply_has_few_plain_steps_where_recent_ones_are_known() -> None:
    """Of the time since the last reply a hundredth might go to measuring at once, which would slow this one."""
    machine = Machine(steady, ms=0.1, cold=1.3)
    for _ in range(20):
        machine.seconds += 1.0
        machine.reply(30)
        steps = machine.steps[-30:]
        slipped = sum(step.milliseconds for step in steps if not step.drafted)
        assert slipped <= 0.15 * sum(step.milliseconds for step in steps)
    assert sum(not step.drafted for step in machine.steps) > 20


def test_plain_steps_while_the_load_changes_tell_little() -> None:
    """What they are expected to take is then wrong itself."""
    known, changing = PlainRatio(), PlainRatio()
    for _ in range(4):
        known.add(0.9, 1.5, 1.45)
        changing.add(0.9, 1.5, 3.0)
    assert known.known(1.5, 1.5)[1] < 0.06
    assert changing.known(1.5, 1.5)[1] > 0.1


def test_slipped_steps_cost_a_hundredth_of_the_time_at_most() -> None:
    machine = Machine(steady)
    for _ in range(10):
        machine.reply(200)
    slipped = [step for step in machine.steps if not step.drafted]
    # Each brings a token, for which drafts would have taken the rest of the time.
    drafts = sum(step.milliseconds for step in machine.steps) - sum(step.milliseconds for step in slipped)
    a_token = drafts / sum(step.emitted for step in machine.steps if step.drafted)
    lost = sum(step.milliseconds - a_token for step in slipped)
    assert len(slipped) > 10
    assert lost <= 1.2 * SHARE * drafts


def test_none_is_slipped_in_before_plain_was_measured_nor_where_there_are_plain_steps_enough() -> None:
    machine = Machine(steady)
    machine.yardstick.begin(0.0)
    assert not any(machine.step().drafted == 0 for _ in range(300))
    machine.yardstick.begin(PLAIN_MS)
    plain = StepOutcome((0,), (), (), 0, (), 0.0, PLAIN_MS)
    for _ in range(300):
        machine.seconds += PLAIN_MS / 1e3
        machine.costs.add("plain", plain)
        machine.yardstick.add("plain", plain)
    assert not machine.yardstick.due()


def test_a_plain_time_of_next_to_nothing_lets_a_reply_draft() -> None:
    """As after a jump of the clock."""
    machine = Machine(steady)
    machine.yardstick.begin(1e-320)
    assert sum(machine.step().drafted > 0 for _ in range(400)) > 100


def test_plain_steps_are_as_fast_as_plain_decoding_but_for_what_was_thought() -> None:
    machine = Machine(steady)
    machine.yardstick.begin(PLAIN_MS)
    for thought, times in ((0.0, 1.0), (PLAIN_MS, 0.5)):
        outcome = StepOutcome((0,), (), (), 0, (), thought, PLAIN_MS)
        machine.costs.add("plain", outcome)
        measured = machine.yardstick.add("plain", outcome)
        assert measured.plain_ms / measured.usual_ms == pytest.approx(times, rel=0.05)
        assert measured.plain_error == 0.0


@pytest.mark.parametrize("slow", [1.0, 3.0])
def test_a_plain_reply_is_as_fast_as_on_a_machine_that_is_not_slow(slow: float) -> None:
    machine = Machine(steady)
    machine.yardstick.begin(PLAIN_MS)
    assert machine.yardstick.usual_speed == 0.0
    plain = StepOutcome((0,), (), (), 0, (), 0.0, PLAIN_MS * slow)
    for _ in range(30):
        machine.seconds += PLAIN_MS * slow / 1e3
        machine.costs.add("plain", plain)
        machine.yardstick.add("plain", plain)
    assert machine.yardstick.usual_speed == pytest.approx(1e3 / PLAIN_MS, rel=0.05)
