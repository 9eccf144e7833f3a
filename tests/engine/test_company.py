"""Replies that decode in one pass: each has the text and the log-probabilities that it has alone."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count, pairwise
from random import Random
from typing import Any

import pytest

from specchat.engine.decoding.costs import VerifyCosts
from specchat.engine.decoding.together import CommonPasses
from specchat.engine.loading import load
from specchat.engine.protocol.events import Event, Finished, Started, Step
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import ReadTexts
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply import company as company_module
from specchat.engine.session import Session
from tests.engine.test_lossless import auto_drafts, finished
from tests.engine.test_turns import RULES, WORDS, Cancellable, alone, asked, chats_of, same, woven

__all__ = ["auto_drafts"]


@pytest.fixture(scope="module")
def bare(tiny_pair: PairSpec) -> Session:
    """A pair without heads: states of layers, which these read, are of one text alone."""
    return load(replace(tiny_pair, heads={}), lambda _: None)


def choosing(chosen: Callable[[list[Any]], list[Any]]) -> Callable[..., list[Any]]:
    """Choose among the replies that have memory for company."""
    return lambda replies, _: chosen([reply for reply in replies if not reply.pace.refused])


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """All replies that may go on in company, whether that pays or not."""
    monkeypatch.setattr(company_module, "worthwhile", choosing(lambda replies: replies))


def now_and_then(random: Random) -> Callable[[list[Any]], list[Any]]:
    """Some of the replies, others after a few steps."""
    number, favoured = count(), dict[int, set[int]]()

    def chosen(replies: list[Any]) -> list[Any]:
        some = favoured.setdefault(next(number) // 7, set(random.sample(range(4), random.choice((0, 2, 4, 4)))))
        found = [reply for reply in replies if reply.request.id % 4 in some]
        return found if len(found) > 1 else []

    return chosen


def logprobs(events: Iterable[Event]) -> list[Any]:
    return [one for event in events if isinstance(event, Step) for one in event.logprobs]


def shared(events: dict[int, list[Event]]) -> int:
    return sum(finished(one).stats.num_shared_steps for one in events.values())


def left(session: Session) -> bool:
    """True if no reply, copy or memory is left of a company."""
    company = session.holder.company
    assert company._passes is not None
    return not (company._replies or company._seats or company._passes.companions or session.shelf._lent)


@pytest.mark.parametrize("replies", [14, pytest.param(1500, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_each_has_the_text_that_it_has_alone(bare: Session, replies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(replies)
    monkeypatch.setattr(company_module, "worthwhile", choosing(now_and_then(random)))
    monkeypatch.setattr(company_module, "AHEAD", 5)
    strategies = [status.name for status in bare.info.strategies if status.available]
    requests = asked(random.choices(strategies, k=replies), random)
    found = woven(bare, requests, random)
    assert shared(found) > replies // 2  # of some 3 a reply: how many steps `auto` takes depends on the time
    assert all(1 <= finished(one).stats.replies_a_pass <= 4 for one in found.values())
    assert any(finished(one).stats.replies_a_pass > 1.2 for one in found.values())
    for request in requests:
        events = list(bare.generate(replace(request, cold=True)))
        assert same(finished(found[request.id]), finished(events)), request
        assert logprobs(found[request.id]) == logprobs(events)
    assert left(bare)


@pytest.mark.usefixtures("always")
def test_chats_go_on_from_what_was_written_in_company(bare: Session) -> None:
    random = Random(5)
    requests = chats_of(5, 20, random, ["plain", "draft", "lookup"])
    found = woven(bare, requests, random)
    assert shared(found) > 40
    reused = 0
    for request in requests:
        assert same(finished(found[request.id]), alone(bare, replace(request, cold=True))), request
        reused += next(event.reused for event in found[request.id] if isinstance(event, Started)) > 40
    assert reused > 6


@pytest.mark.usefixtures("always")
def test_a_text_that_was_written_in_company_is_not_read_again(bare: Session) -> None:
    bare.forget_read()
    requests = [Generate(i, (), limits=Limits(40), raw=f"{i} {RULES}") for i in range(2)]
    found = woven(bare, requests, Random(1))
    assert shared(found) > 40
    for request in requests:
        text = [*bare.tokenizer.encode(request.raw or ""), *finished(found[request.id]).token_ids]
        assert bare.target.rewind(text) > len(text) - 3


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("way", ["cancelled", "closed"])
def test_one_that_stops_amid_company_leaves_the_others_alone(bare: Session, way: str) -> None:
    requests = [
        Generate(number, (Message("user", WORDS[number]),), Sampling(seed=number), Limits(16), Speculation.of(name))
        for number, name in enumerate(("draft", "plain", "lookup"))
    ]
    expected, control = [alone(bare, request) for request in requests], Cancellable()
    running = [bare.generate(requests[0]), bare.generate(requests[1], control), bare.generate(requests[2])]
    events = dict[int, list[Event]]({0: [], 1: [], 2: []})
    for _ in range(6):
        for number, one in enumerate(running):
            events[number].append(next(one))
    assert len(bare.holder.company._seats) == 3
    if way == "closed":
        running[1].close()  # type: ignore[attr-defined]
    else:
        control.cancelled = True
        last = finished(list(running[1]))
        assert last.reason == "cancelled"
        assert last.token_ids == expected[1].token_ids[: len(last.token_ids)]
    assert len(bare.holder.company._seats) == 2
    for number in (0, 2):
        events[number] += running[number]
        assert same(finished(events[number]), expected[number])
    assert left(bare)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("tokens", [10, 90])
def test_without_memory_for_a_copy_replies_take_turns(
    bare: Session, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start, or once their texts have grown."""
    of_token = sum(part.nbytes // part.shape[1] for part in bare.target.model.entries().tensors)  # type: ignore[attr-defined]
    bare.forget_read()
    monkeypatch.setattr(company_module, "AHEAD", 4)
    monkeypatch.setattr(bare.shelf, "_bounds", ReadTexts(tokens * of_token))
    requests = [Generate(i, (), limits=Limits(60), raw=f"{i} twelve tokens") for i in range(3)]
    found = woven(bare, requests, Random(2))
    assert (shared(found) > 0) == (tokens == 90)
    for request in requests:
        last = finished(found[request.id])
        assert last.stats.num_shared_steps < last.stats.num_steps
        assert same(last, alone(bare, replace(request, cold=True)))
    assert left(bare)


@pytest.mark.usefixtures("always")
def test_replies_whose_drafts_change_the_text_take_turns(bare: Session) -> None:
    ratio = Speculation.of("draft", 3, "ratio")
    drawn = [
        Generate(i, (Message("user", "x"),), Sampling(seed=i, temperature=1.0), Limits(12), ratio) for i in range(2)
    ]
    assert not shared(woven(bare, drawn, Random(3)))
    greedy = [replace(request, sampling=Sampling()) for request in drawn]
    assert shared(woven(bare, greedy, Random(3)))


@pytest.mark.usefixtures("always")
def test_the_first_pass_of_others_is_not_measured(bare: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU captures it first."""
    passes, run, add = bare.holder.company._passes, CommonPasses.run, VerifyCosts.add
    of_passes, measured = list[list[object]](), list[int]()

    def noted(passes: CommonPasses) -> None:
        of_passes.append([one.copy for one in passes.companions if one.waits])
        run(passes)

    def added(costs: VerifyCosts, rows: int, ms: float) -> None:
        assert passes is not None
        measured.extend([len(of_passes)] * (costs is passes._costs))
        add(costs, rows, ms)

    monkeypatch.setattr(CommonPasses, "run", noted)
    monkeypatch.setattr(VerifyCosts, "add", added)
    woven(bare, [Generate(i, (), limits=Limits(20), raw=f"{i} x") for i in range(3)], Random(1))
    again = [number for number, (before, now) in enumerate(pairwise(of_passes), 2) if before == now]
    assert measured == again
    assert 0 < len(again) < len(of_passes)


@pytest.mark.usefixtures("always")
def test_replies_of_a_pair_with_heads_take_turns(session: Session) -> None:
    requests = [Generate(i, (Message("user", "x"),), limits=Limits(12)) for i in range(2)]
    assert not shared(woven(session, requests, Random(3)))


@pytest.mark.usefixtures("always")
def test_a_lone_reply_is_alone(bare: Session) -> None:
    first, second = (Generate(i, (Message("user", "x"),), limits=Limits(24)) for i in range(2))
    running = bare.generate(first)
    events = [next(running) for _ in range(4)]
    assert not bare.holder.together
    list(bare.generate(second))
    assert not bare.holder.together
    last = finished([*events, *running])
    assert isinstance(last, Finished)
    assert left(bare)
