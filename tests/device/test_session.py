"""Whole replies over the device's runner: where they end, and that nothing more is told than was asked for."""

from dataclasses import replace
from random import Random
from time import perf_counter

import pytest

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply import measure
from specchat.engine.runners.runner import Runner
from specchat.engine.session import Session
from specchat.engine.text.tokenizer import Tokenizer
from tests.device.conftest import Folders
from tests.engine.test_lossless import finished as finished_of
from tests.engine.test_turns import same, woven


@pytest.fixture(scope="module")
def session(runner: Runner, shallow: Folders) -> Session:
    spec = PairSpec("tiny", "Tiny", ModelSource(path=str(shallow.target)), ModelSource(path=str(shallow.draft)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BUDGET_S", 0.01)
        patch.setattr(measure, "STEPS", 1)
        return Session(spec, Tokenizer.read(shallow.target), runner, perf_counter())


@pytest.mark.parametrize("most", [1, 4, 6])
def test_a_reply_ends_at_its_limit_though_the_device_drafts_on(session: Session, most: int) -> None:
    """The draft keeps its length to the end, so that nothing is captured anew for the last steps."""
    sampling = Sampling(seed=2, temperature=0.8)

    def written(speculation: Speculation) -> tuple[Finished, list[Step]]:
        request = Generate(1, (Message("user", "ab"),), sampling, Limits(most), speculation, cold=True)
        *events, last = session.generate(request)
        assert isinstance(last, Finished)
        return last, [event for event in events if isinstance(event, Step)]

    plain, _ = written(Speculation())
    drafted, steps = written(Speculation("draft", 3))
    assert plain.reason == "length"
    assert (drafted.token_ids, drafted.text, drafted.reason) == (plain.token_ids, plain.text, plain.reason)
    assert sum(step.emitted for step in steps) == most
    assert {step.drafted for step in steps} == {3}


def test_a_reply_that_goes_on_is_penalised_for_all_of_its_tokens(session: Session) -> None:
    """Rewarded like that, its first token comes again and again."""
    sampling = Sampling(seed=2, temperature=0.8, presence_penalty=-1000.0)
    request = Generate(1, (Message("user", "ab"),), sampling, Limits(6), cold=True)
    whole, cut = (finished(session, replace(request, limits=Limits(most))) for most in (6, 3))
    rest = finished(session, replace(request, limits=Limits(3), begun=replace(cut.written, token_ids=cut.token_ids)))
    assert (*cut.token_ids, *rest.token_ids) == whole.token_ids


def test_replies_that_take_turns_write_what_they_write_alone(session: Session) -> None:
    """With a step of each under way, which is dropped, and one that is written pass by pass."""
    speculations = (Speculation("draft", 3), Speculation(), Speculation("draft", 2))
    requests = [
        Generate(number, (Message("user", "ab" * (number + 1)),), Sampling(seed=number), Limits(6), speculation)
        for number, speculation in enumerate(speculations)
    ]
    requests[2] = replace(requests[2], grammar=Grammar("regex", "[a-z]+"))
    found = woven(session, requests, Random(1))
    for request in requests:
        assert same(finished_of(found[request.id]), finished(session, request))


def finished(session: Session, request: Generate) -> Finished:
    *_, last = session.generate(request)
    assert isinstance(last, Finished)
    return last


def test_texts_that_come_back_from_the_shelf_go_on_as_if_read_anew(session: Session) -> None:
    """Of target and draft, and drafted on the device."""
    chats, reused = ["a" * 40, "b" * 40, "a" * 40 + "c"], list[int]()
    for turn, which in enumerate((0, 1, 2)):
        message = (Message("user", chats[which]),)
        request = Generate(1, message, Sampling(seed=turn, temperature=0.8), Limits(3), Speculation("draft", 3))
        first, *_, last = session.generate(request)
        assert isinstance(first, Started)
        assert isinstance(last, Finished)
        reused.append(first.reused)
        assert last.token_ids == finished(session, replace(request, cold=True)).token_ids
    assert reused[1] < 10 < 40 < reused[2]
