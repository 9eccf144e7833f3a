"""The scripted engine behaves like the real one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.engine.protocol.events import Changed, Counted, Event, Failed, Finished, Loaded, Started, Step
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Cancel, Change, Count, Generate, Load
from specchat.engine.strategies import STRATEGIES, delegates
from tests import fake
from tests.fake import FakeEngine

PAIR = PairSpec("pair", "Pair", ModelSource(path="x"))
DRAFT = Speculation.of("draft")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def loaded(engine: FakeEngine) -> FakeEngine:
    engine.start()
    engine.send(Load(PAIR))
    assert isinstance(engine.poll()[-1], Loaded)
    return engine


def ask(reply: int = 1, speculation: Speculation = DRAFT) -> Generate:
    return Generate(reply, (Message("user", "tell me"),), speculation=speculation)


def text_of(events: list[Event]) -> str:
    return "".join(piece.text for event in events if isinstance(event, Step) for piece in event.pieces)


@given(st.text(), st.lists(st.integers(0, 8), min_size=1), st.sampled_from(list(STRATEGIES)))
def test_steps_say_the_whole_text_and_add_up(text: str, accepted: list[int], strategy: str) -> None:
    made = fake.steps(text, accepted, strategy, 5, used=7)
    assert text_of(list(made)) == text
    used = 7
    for step in made:
        used += step.emitted
        assert step.context_used == used
        assert step.emitted == step.accepted + 1
        assert [piece.position for piece in step.pieces] == list(range(step.accepted + 1))
        assert step.accepted <= step.tested <= step.drafted
        assert (step.drafted == 0) == (step.strategy == "plain")
        assert step.strategy == strategy or delegates(strategy)
        assert len(step.drafts) == step.drafted
        kept, refused = step.drafts[: step.accepted], step.drafts[step.accepted :]
        assert "".join(draft.text for draft in kept) == "".join(piece.text for piece in step.pieces[:-1])
        assert not refused or refused[0].text != step.pieces[-1].text
        assert all((draft.probability is None) == (step.strategy == "lookup") for draft in step.drafts)
    figures = fake.stats(made, 7, 100.0)
    assert figures.completion_tokens == used - 7
    assert sum(figures.acceptance_histogram) == figures.num_spec_steps == len(figures.per_step_accepted)


def test_replies_take_turns() -> None:
    engine = loaded(FakeEngine(["One.", "Two."]))
    said = []
    for reply in (1, 2, 3):
        engine.send(ask(reply))
        started, *_, finished = engine.poll()
        assert isinstance(started, Started)
        assert isinstance(finished, Finished)
        assert started.id == finished.id == reply
        said.append(finished.text)
    assert said == ["One.", "Two.", "One."]


def test_steps_arrive_at_the_asked_pace() -> None:
    clock = Clock()
    engine = loaded(FakeEngine(["one two three four five six seven eight"], tokens_per_second=10, clock=clock))
    engine.send(ask())
    assert [type(event) for event in engine.poll()] == [Started]
    clock.now = 0.4
    assert text_of(engine.poll()) == "one two three four"
    assert engine.poll() == []
    clock.now = 0.8
    *_, finished = engine.poll()
    assert isinstance(finished, Finished)


def test_cancel_keeps_what_was_said() -> None:
    clock = Clock()
    engine = loaded(FakeEngine(["one two three four five six seven eight"], tokens_per_second=10, clock=clock))
    engine.send(ask())
    clock.now = 0.4
    engine.poll()
    engine.send(Cancel(1))
    clock.now = 9
    (finished,) = engine.poll()
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.text) == ("cancelled", "one two three four")
    assert finished.stats.completion_tokens == 4


def test_cancel_before_the_first_step() -> None:
    engine = loaded(FakeEngine(["one"], tokens_per_second=1, clock=Clock()))
    engine.send(ask())
    engine.send(Cancel(1))
    assert [event.reason for event in engine.poll() if isinstance(event, Finished)] == ["cancelled"]
    engine.send(Cancel(1))
    assert engine.poll() == []


def test_change_drafts_the_rest_differently() -> None:
    clock = Clock()
    engine = loaded(FakeEngine(["one two three four five six seven eight"], tokens_per_second=10, clock=clock))
    engine.send(ask())
    clock.now = 0.4
    before = engine.poll()
    engine.send(Change(1, Speculation()))
    clock.now = 9
    changed, *after, finished = engine.poll()
    assert changed == Changed(1, Speculation(), 4)
    assert {step.strategy for step in after if isinstance(step, Step)} == {"plain"}
    assert isinstance(finished, Finished)
    assert finished.text == text_of(before) + text_of(after) == "one two three four five six seven eight"


def test_failures_come_once() -> None:
    engine = FakeEngine(["one two three four five six"])
    engine.start()
    engine.fail_load("model", "no such folder")
    engine.send(Load(PAIR))
    assert engine.poll()[-1] == Failed(None, "model", "no such folder")
    loaded(engine)
    engine.fail_reply("memory", "full")
    engine.send(ask(1))
    _, step, failed = engine.poll()
    assert isinstance(step, Step)
    assert failed == Failed(1, "memory", "full")
    engine.send(ask(2))
    assert isinstance(engine.poll()[-1], Finished)


def test_death_and_restart() -> None:
    engine = loaded(FakeEngine(["one two"], tokens_per_second=1, clock=Clock()))
    engine.send(ask(4))
    engine.die()
    engine.die()
    assert not engine.alive
    assert [(event.id, event.kind) for event in engine.poll() if isinstance(event, Failed)] == [(4, "died")]
    engine.send(ask(5))
    assert engine.poll() == [Failed(5, "died", "The engine is not running.")]
    engine.restart()
    assert engine.alive
    assert isinstance(engine.poll()[-1], Loaded)


def test_count_counts_words() -> None:
    engine = loaded(FakeEngine())
    engine.send(Count(3, (Message("user", "one two, three"),)))
    assert engine.poll() == [Counted(3, 4, fake.INFO.context)]


def test_a_prefill_begins_the_reply() -> None:
    clock = Clock()
    engine = loaded(FakeEngine([" one two three four"], tokens_per_second=10, clock=clock))
    for reply, seconds, said in ((1, 9, "So: one two three four"), (2, 0.4, "So: one two three four"), (3, 0, "So:")):
        start = clock.now
        engine.send(replace(ask(reply), prefill="So:"))
        clock.now = start + seconds
        started, *events = engine.poll()
        engine.send(Cancel(reply))
        *rest, finished = [*events, *engine.poll()]
        assert isinstance(started, Started)
        assert isinstance(finished, Finished)
        assert (started.prefill, finished.text) == ("So:", said)
        assert finished.text == "So:" + text_of(rest)
        assert started.prompt_tokens == 4


def test_what_does_not_fit_is_left_out() -> None:
    engine = loaded(FakeEngine(info=replace(fake.INFO, context=8)))
    limits = Limits(2, context="drop-oldest")
    messages = (Message("user", "one two"), Message("assistant", "three four"), Message("user", "five six"))
    engine.send(Count(1, messages, limits))
    assert engine.poll() == [Counted(1, 6, 8)]
    engine.send(Count(2, messages, limits, "seven"))
    assert engine.poll() == [Counted(2, 3, 8, 2)]
    engine.send(Generate(3, messages, limits=limits, prefill="seven"))
    started = engine.poll()[0]
    assert isinstance(started, Started)
    assert (started.prompt_tokens, started.dropped) == (3, 2)


@pytest.mark.parametrize("die", [True, False])
def test_events_wait_for_the_pace_and_end(die: bool) -> None:
    engine = loaded(FakeEngine(["one two three"], tokens_per_second=200))
    engine.send(ask())
    if die:
        engine.die()
    events = list(engine.events())
    assert isinstance(events[-1], Failed if die else Finished)
    assert list(engine.events(0)) == []
