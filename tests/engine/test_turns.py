"""Replies that take turns between their events: each has the text that it has alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from random import Random
from time import perf_counter

import pytest

from specchat.engine import session as session_module
from specchat.engine.protocol.events import Event, Finished, PromptProgress, Started, Step
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Cancel, Change, Generate
from specchat.engine.session import Session
from tests.engine.test_lossless import SAMPLINGS, auto_drafts, finished

__all__ = ["auto_drafts"]

RULES = "You answer in short sentences, and never twice the same. " * 3
WORDS = ("abcabcabcabc", "The cat sat. The cat sat. The", "x")


def woven(session: Session, requests: Sequence[Generate], random: Random, at_once: int = 4) -> dict[int, list[Event]]:
    """Events of all replies, which are begun in order and go on in any."""
    waiting, found = list(requests), dict[int, list[Event]]()
    running: dict[int, Iterator[Event]] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            request = waiting.pop(0)
            running[request.id], found[request.id] = iter(session.generate(request)), []
        turn = random.choice(list(running))
        event = next(running[turn])
        found[turn].append(event)
        if isinstance(event, Finished):
            del running[turn]
    return found


def asked(strategies: Sequence[str], random: Random) -> list[Generate]:
    """A request for each strategy, with samplings and prompts in turn."""
    samplings = islice(cycle(SAMPLINGS.values()), len(strategies))
    return [
        Generate(
            number,
            (Message("system", RULES), Message("user", random.choice(WORDS))),
            replace(sampling, seed=number),
            Limits(random.randint(2, 24)),
            Speculation.of(strategy),
            logprobs=2 if number % 5 == 4 else None,
            grammar=Grammar("regex", "[a-z ]{3,30}") if number % 4 == 3 else None,
        )
        for number, (strategy, sampling) in enumerate(zip(strategies, samplings, strict=True))
    ]


def alone(session: Session, request: Generate) -> Finished:
    return finished(list(session.generate(request)))


def same(one: Finished, other: Finished) -> bool:
    return (one.token_ids, one.text, one.reason) == (other.token_ids, other.text, other.reason)


@pytest.mark.parametrize("seed", [0, 1])
def test_each_has_the_text_that_it_has_alone(session: Session, seed: int) -> None:
    random = Random(seed)
    strategies = [status.name for status in session.info.strategies if status.available]
    random.shuffle(strategies)
    requests = asked(strategies, random)
    found = woven(session, requests, random)
    for request in requests:
        events, expected = found[request.id], alone(session, request)
        assert same(finished(events), expected), request.speculation.strategy
        steps = [event for event in events if isinstance(event, Step)]
        assert sum(step.emitted for step in steps) == len(expected.token_ids)
        told = [token for step in steps for token in step.logprobs]
        assert bool(told) == (request.logprobs is not None)


def test_a_prompt_is_read_in_parts_between_which_others_go_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "PART_S", 0.0)
    monkeypatch.setattr(type(session.target.model), "block", 8, raising=False)
    long = Generate(1, (Message("user", "one two three four five six " * 6),), limits=Limits(8))
    short = Generate(2, (Message("user", "x"),), limits=Limits(8))
    expected = {request.id: alone(session, request) for request in (long, short)}
    session.forget()
    session.shelf.clear()
    found = woven(session, [long, short], Random(3))
    for number, last in expected.items():
        assert same(finished(found[number]), last)
    kinds = [type(event) for event in found[1]]
    parts = [event for event in found[1] if isinstance(event, PromptProgress)]
    assert len(parts) > 2
    assert kinds.index(Started) == len(parts)
    assert all(0 <= part.read < part.tokens for part in parts)


def test_a_reply_that_is_left_stops_and_others_go_on(session: Session) -> None:
    requests = [
        Generate(number, (Message("user", WORDS[number]),), Sampling(seed=number), Limits(12), Speculation.of(name))
        for number, name in enumerate(("draft", "eagle3", "plain"))
    ]
    expected = [alone(session, request) for request in requests]
    running = [iter(session.generate(request)) for request in requests]
    for _ in range(3):
        for one in running:
            next(one)
    running[1].close()  # type: ignore[attr-defined]
    assert same(finished(list(running[2])), expected[2])
    assert same(finished(list(running[0])), expected[0])


class Cancellable:
    """A control that cancels once it is told to."""

    def __init__(self) -> None:
        self.cancelled = False

    def poll(self) -> Cancel | Change | None:
        return Cancel(1) if self.cancelled else None


@pytest.mark.parametrize("after", [PromptProgress, Started, Step])
def test_one_that_is_cancelled_meanwhile_reads_nothing_back(
    after: type[Event], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "PART_S", 0.0)
    monkeypatch.setattr(type(session.target.model), "block", 8, raising=False)
    session.forget()
    session.shelf.clear()
    control, request = Cancellable(), Generate(1, (Message("user", "one two three four é " * 4),), limits=Limits(24))
    ending, other = iter(session.generate(request, control)), Generate(2, (Message("user", "x"),), limits=Limits(8))
    while not isinstance(next(ending), after):
        pass
    expected, going = alone(session, other), iter(session.generate(other))
    next(going)
    held = session.holder.reply
    control.cancelled = True
    *_, last = ending
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"
    assert session.holder.reply is held
    assert same(finished(list(going)), expected)


def test_the_time_of_others_does_not_count(session: Session) -> None:
    """Neither as this reply's work nor as a wait."""
    one = iter(session.generate(Generate(1, (Message("user", "ab"),), limits=Limits(12))))
    began, of_others, counted = perf_counter(), 0.0, 0.0
    for event in one:
        if isinstance(event, Step):
            counted += event.draft_ms + event.verify_ms + event.other_ms + event.waited_ms
            left = perf_counter()
            alone(session, Generate(2, (Message("user", "cd"),), limits=Limits(24)))
            of_others += perf_counter() - left
    assert of_others > 0
    assert counted <= 1e3 * (perf_counter() - began - of_others)


def chats_of(clients: int, replies: int, random: Random, strategies: Sequence[str]) -> list[Generate]:
    """Requests of some clients, each of which goes on with a chat of its own, or begins another."""
    texts, requests = dict[int, str](), list[Generate]()
    for number in range(replies):
        client = random.randrange(clients)
        more = " ".join(random.choices(("fox", "lamp", "crab", "sea", "old", "said"), k=random.randint(1, 9)))
        chat = texts.get(client, "") if random.random() < 0.8 else ""
        texts[client] = f"{chat or RULES[:60]} {more}"[:200]
        sampling = replace(random.choice(list(SAMPLINGS.values())), seed=number)
        speculation = Speculation.of(random.choice(strategies))
        requests.append(Generate(number, (Message("user", texts[client]),), sampling, Limits(12), speculation))
    return requests


@pytest.mark.parametrize("replies", [24, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_replies_of_six_clients_are_those_of_empty_caches(session: Session, replies: int) -> None:
    """Texts come from the live cache, from the shelf and anew, whoever had a turn before."""
    random = Random(replies)
    strategies = [status.name for status in session.info.strategies if status.available]
    requests = chats_of(6, replies, random, strategies)
    found = woven(session, requests, random)
    reused = 0
    for request in requests:
        events = found.pop(request.id)
        assert same(finished(events), alone(session, replace(request, cold=True))), request
        reused += next(event.reused for event in events if isinstance(event, Started)) > 40
    assert reused > replies / 3
