"""The draft model reads while the target does: the same cache, no longer than that, and nothing lost by a fault."""

from collections.abc import Sequence
from threading import Event
from time import perf_counter, sleep
from typing import Any

import pytest
import torch

from specchat.engine.api import Generate, Message
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.costs import Mean
from specchat.engine.drafters.auto import AutoDrafter
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.promises import Promises
from specchat.engine.drafters.read_ahead import WORTH, ReadAhead, reader
from specchat.engine.options import Limits, Sampling, Speculation
from specchat.engine.session import Session
from tests.engine.test_lossless import reply

PROMPT = list(range(30, 30 + 2 * WORTH))


@pytest.fixture
def draft(session: Session) -> DraftModelDrafter:
    session.forget()
    drafter = session.drafters["draft"]
    assert isinstance(drafter, DraftModelDrafter)
    drafter.begin(PROMPT)
    return drafter


def wait(draft: DraftModelDrafter) -> None:
    end = perf_counter() + 60
    while draft.unread(PROMPT) and perf_counter() < end:
        sleep(0.001)


def test_what_was_read_ahead_is_what_is_read_otherwise(draft: DraftModelDrafter) -> None:
    with ReadAhead(draft, PROMPT, alone=False):
        wait(draft)
    assert draft.unread(PROMPT) == 0
    model = draft.draft.model
    assert isinstance(model, CpuDecoder)
    ahead = model.cache.keys[:, :, : len(PROMPT) - 2].clone()
    draft.forget()
    model.cache.keys.zero_()
    draft.read(PROMPT)
    assert torch.equal(ahead, model.cache.keys[:, :, : len(PROMPT) - 2])


def test_it_ends_with_the_target(draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the block that is being read."""
    fill, blocks, begun = draft.draft.fill, [], Event()
    ahead = ReadAhead(draft, PROMPT, alone=False)

    def slow(text: list[int]) -> bool:
        begun.set()
        assert ahead._enough.wait(60)
        blocks.append(len(text))
        return fill(text[: len(draft.draft.tokens) + 9])

    monkeypatch.setattr(draft.draft, "fill", slow)
    with ahead:
        assert begun.wait(60)
    assert len(blocks) == 1
    assert draft.unread(PROMPT) > 0


def test_short_prompts_are_not_worth_a_thread(draft: DraftModelDrafter) -> None:
    with ReadAhead(draft, PROMPT[:WORTH], alone=False):
        sleep(0.05)
    assert draft.unread(PROMPT[:WORTH]) == WORTH - 2


def test_a_fault_is_left_to_who_drafts(draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Event()

    def failing(_: list[int]) -> bool:
        begun.set()
        raise MemoryError

    monkeypatch.setattr(draft.draft, "fill", failing)
    with ReadAhead(draft, PROMPT, alone=False):
        assert begun.wait(60)
    assert draft.unread(PROMPT) == len(PROMPT) - 2


@pytest.mark.parametrize("alone", [False, True])
def test_the_target_keeps_its_threads(draft: DraftModelDrafter, alone: bool) -> None:
    before = torch.get_num_threads()
    with ReadAhead(draft, PROMPT, alone):
        wait(draft)
    assert torch.get_num_threads() == before


def test_waiting_for_a_core_beside_the_target_does_not_count(
    draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, took = draft.draft.fill, []

    def waiting(text: Sequence[int]) -> bool:
        sleep(1.0)
        return fill(text)

    monkeypatch.setattr(draft.draft, "fill", waiting)
    for enough in (Event(), None):
        draft.forget()
        monkeypatch.setattr(draft, "_read", Mean())
        draft.read(PROMPT, enough)
        took.append(draft._read.value * (len(PROMPT) - 2))
    assert took[0] < 1000 < took[1]


def test_only_what_will_be_needed_is_read(
    session: Session, draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafters = session.drafters
    used = {name for name in drafters if reader(drafters, Speculation.of(name), PROMPT)}
    assert used >= {"draft", "draft-tree", "cascade"}
    assert used.isdisjoint({"plain", "lookup", "suffix", "ngram", "swift"})
    for promise, read in ((0.0, None), (1e9, draft)):
        monkeypatch.setattr(Promises, "_ranked", lambda *_, promise=promise: [(promise, "draft")])
        assert reader(drafters, Speculation.of("auto"), PROMPT) is read
        session.forget()
    monkeypatch.setattr(draft, "ahead", True)
    assert reader(drafters, Speculation.of("draft"), PROMPT) is None
    assert reader({"plain": drafters["plain"]}, Speculation(), PROMPT) is None


def test_who_drafts_first_is_found_out_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    choose, lengths = AutoDrafter._choose, list[int]()

    def counted(self: AutoDrafter, text: Sequence[int], *rest: Any) -> None:
        lengths.append(len(text))
        choose(self, text, *rest)

    monkeypatch.setattr(AutoDrafter, "_choose", counted)
    story = (Message("user", "Tell me a story."),)
    list(session.generate(Generate(1, story, limits=Limits(12), speculation=Speculation.of("auto", 5))))
    assert lengths
    assert len(set(lengths)) == len(lengths)


@pytest.mark.parametrize("strategy", ["draft", "plain"])
def test_replies_read_ahead(session: Session, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    enter = ReadAhead.__enter__
    monkeypatch.setattr(ReadAhead, "__enter__", lambda self: (enter(self), started.append(self._thread is not None))[0])
    session.forget()
    reply(session, "abc " * WORTH, Sampling(), Limits(3), Speculation.of(strategy))
    assert started == [strategy == "draft"]
