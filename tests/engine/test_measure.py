"""What is measured at load, whatever else the machine does meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle, repeat

import pytest

from specchat.engine import session
from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.errors import EngineError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Event
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply import measure
from specchat.engine.reply.measure import check_costs, draft_costs, read_prompt
from specchat.engine.session import Session
from specchat.engine.strategy import MAX_DRAFT_LENGTH

PROMPT = [0] * 64
DELAYS = (0.0, 40.0, 0.0, 0.0, 7.0)
"""Milliseconds that other programs take from the steps, in turn."""


class Drafter:
    def begin(self, prompt: list[int]) -> None:
        assert len(prompt) > 1


@dataclass
class Machine:
    """A runner whose checks take 1 ms and a tenth for each further row, and drafted tokens half a millisecond."""

    context: int = 512
    drafters: dict[str, Drafter] = field(default_factory=lambda: {"lookup": Drafter(), "draft": Drafter()})
    room: int = 400
    ends: Iterator[int] = field(default_factory=lambda: repeat(MAX_DRAFT_LENGTH))
    """Where drafts end by themselves."""

    def __post_init__(self) -> None:
        self.target = self.executor = self
        self.policies = LengthPolicies(StepCosts())
        self.delays = cycle(DELAYS)

    def begin(self, prompt: list[int]) -> None:
        pass

    def reply(self, *_: object) -> "Machine":
        return self

    def close(self) -> None:
        pass

    def step(self, drafter: Drafter, length: int, acceptance: str) -> StepOutcome:
        self.whole = self.policies.off
        length = min(length, next(self.ends))
        tokens = (0,) * length
        delay = next(self.delays)
        return StepOutcome(tokens, tokens, (), length, (), 0.5 * length + delay, 1.0 + 0.1 * length + delay)


def test_other_programs_do_not_make_some_checks_dearer_than_others() -> None:
    machine = Machine()
    costs = check_costs(machine, PROMPT)  # type: ignore[arg-type]
    assert min(costs) == 1
    assert max(costs) == 1 + MAX_DRAFT_LENGTH
    assert costs == {rows: pytest.approx(1.0 + 0.1 * (rows - 1)) for rows in costs}


def test_drafted_tokens_are_measured_for_those_that_run_a_model() -> None:
    machine = Machine()
    assert draft_costs(machine, PROMPT) == {"draft": pytest.approx({1: 0.5, 4: 2.0})}  # type: ignore[arg-type]
    assert machine.whole, "no draft ends before"
    assert not machine.policies.off
    assert draft_costs(Machine(drafters={"lookup": Drafter()}), PROMPT) == {}  # type: ignore[arg-type]


def test_what_was_drafted_once_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delayed by another program it would make each token of the family many times as dear."""
    monkeypatch.setattr(measure, "DRAFTS", 5)
    ends = iter([1] * (measure.WARM_UP + measure.DRAFTS) + [2] * measure.WARM_UP + [2, 4, 2, 2, 2])
    machine = Machine(ends=ends)
    assert draft_costs(machine, PROMPT) == {"draft": pytest.approx({1: 0.5, 2: 1.0})}  # type: ignore[arg-type]


def test_a_slow_model_s_drafts_are_told_by_the_steps_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(measure, "perf_counter", lambda: 0.4 * next(now))
    assert draft_costs(Machine(), PROMPT).keys() == {"draft"}  # type: ignore[arg-type]


def test_without_lookup_no_check_is_measured() -> None:
    assert check_costs(Machine(drafters={}), PROMPT) == {}  # type: ignore[arg-type]


def test_a_slow_model_is_measured_on_fewer_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """On its usual ones: without any, each further token would be taken as nearly free."""
    now = 0.0

    def step(machine: Machine, drafter: Drafter, length: int, acceptance: str) -> StepOutcome:
        nonlocal now
        now += 0.3
        return of_machine(machine, drafter, length, acceptance)

    of_machine = Machine.step
    monkeypatch.setattr(Machine, "step", step)
    monkeypatch.setattr(measure, "perf_counter", lambda: now)
    assert check_costs(Machine(), PROMPT).keys() == {1, 5}  # type: ignore[arg-type]


def test_a_machine_too_slow_to_read_the_prompt_loads_a_pair(
    tiny_pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "BUDGET_S", 0.0)
    monkeypatch.setattr(measure, "REPLY", replace(measure.REPLY, messages=(Message("user", "ab" * 110),)))
    assert load(PairSpec("tiny", "Tiny", tiny_pair.target), lambda _: None).info.plain.tokens_per_second > 0


def test_all_that_is_measured_shares_one_reading_of_the_prompt(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of some billion parameters takes a second for each."""
    reused, target = list[int](), demo.runner.target
    begin = CachedModel.begin

    def counted(model: CachedModel[Decoder], prompt: list[int]) -> int:
        known = begin(model, prompt)
        reused.extend([known] * (model is target))
        return known

    monkeypatch.setattr(CachedModel, "begin", counted)
    demo.forget()
    with monkeypatch.context() as still:
        still.setattr(measure, "perf_counter", lambda: 0.0)
        prompt = read_prompt(demo.runner)
    monkeypatch.setattr(measure, "BUDGET_S", 0.05)
    assert len(prompt) == measure.PROMPT_TOKENS
    assert measure.plain_speed(demo.runner, prompt) > 0
    check_costs(demo.runner, prompt)
    assert draft_costs(demo.runner, prompt)
    assert len(reused) > 8
    assert {*reused[2:]} == {len(prompt) - 1}, "of the first one another test may have left some"


def test_a_model_that_is_slow_to_read_is_measured_after_few_tokens(
    demo: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.forget()
    monkeypatch.setattr(measure, "BUDGET_S", 0.0)
    assert len(read_prompt(demo.runner)) == measure.SHORT_TOKENS == len(demo.target.tokens) + 1


@pytest.mark.parametrize(("per_second", "begun"), [(30.0, ["auto", "plain"]), (10.0, ["auto"]), (5.0, [])])
def test_replies_that_have_no_time_are_not_begun(
    tiny_pair: PairSpec, monkeypatch: pytest.MonkeyPatch, per_second: float, begun: list[str]
) -> None:
    """A model of some billion parameters answers its first prompt the earlier."""
    asked: list[str] = []

    def generate(_: Session, request: Generate, __: object) -> Iterator[Event]:
        asked.append(request.speculation.strategy)
        if asked[-1] == "plain":
            raise EngineError("request", "enough is known")
        return iter(())

    monkeypatch.setattr(session, "plain_speed", lambda *_: per_second)
    monkeypatch.setattr(Session, "generate", generate)
    pair = load(PairSpec("tiny", "Tiny", tiny_pair.target), lambda _: None)
    assert asked == begun
    assert pair.info.plain.tokens_per_second == per_second
