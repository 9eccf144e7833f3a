"""The draft model reads while the target does: the same cache, no longer than that, and nothing lost by a fault."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import perf_counter, sleep
from typing import Any

import pytest
import torch

from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.bandit.estimates import Estimates
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.means import Mean
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.hardware import threads
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished, Started
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Cancel, Change, Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.reply.read_ahead import WORTH, ReadAhead, reader
from specchat.engine.runners.host import host_runner
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import on_cpu, perturbed

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
    with ReadAhead(draft, PROMPT, free_cores=1):
        wait(draft)
    assert draft.unread(PROMPT) == 0
    model = draft.draft.model
    assert isinstance(model, CpuDecoder)
    ahead = torch.stack(model.cache.keys)[:, :, : len(PROMPT) - 2].clone()
    draft.forget()
    for keys in model.cache.keys:
        keys.zero_()
    assert list(draft.reading(PROMPT)) == [None]
    assert torch.equal(ahead, torch.stack(model.cache.keys)[:, :, : len(PROMPT) - 2])


def test_it_ends_with_the_target(draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the block that is being read."""
    fill, blocks, begun = draft.draft.fill, [], Event()
    ahead = ReadAhead(draft, PROMPT, free_cores=1)

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
    with ReadAhead(draft, PROMPT[:WORTH], free_cores=1):
        sleep(0.05)
    assert draft.unread(PROMPT[:WORTH]) == WORTH - 2


def test_without_a_core_to_spare_it_reads_after_the_target(draft: DraftModelDrafter) -> None:
    """A block at a time, so that a reply can be cancelled meanwhile."""
    prompt = PROMPT * 3
    draft.begin(prompt)
    with ReadAhead(draft, prompt, free_cores=0) as ahead:
        sleep(0.05)
        assert draft.unread(prompt) == len(prompt) - 2
        assert ahead.fill()
        assert draft.unread(prompt) == len(prompt) - 2 - draft.draft.model.block
        assert ahead.fill()
        assert draft.unread(prompt) == 0
        assert not ahead.fill()
    with ReadAhead(None, prompt, free_cores=0) as ahead:
        assert not ahead.fill()


def test_reading_costs_what_its_blocks_took(draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a reply that is cancelled meanwhile, too; what is done between blocks belongs to nobody's reading."""
    now, fill = 0.0, draft.draft.fill

    def slow(text: list[int]) -> bool:
        nonlocal now
        now += 2.0
        return fill(text[: len(draft.draft.tokens) + 9])

    monkeypatch.setattr(draft.draft, "fill", slow)
    monkeypatch.setattr(draft, "_read", Mean())
    blocks = draft.reading(PROMPT, lambda: now)
    for _ in range(3):
        next(blocks)
        now += 100.0
    del blocks
    assert draft._read.value == 3 * 2000.0 / len(draft.draft.tokens)


def test_what_a_thread_reads_nobody_else_does(draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    fill, begun, go_on = draft.draft.fill, Event(), Event()

    def slow(text: list[int]) -> bool:
        begun.set()
        assert go_on.wait(60)
        return fill(text)

    monkeypatch.setattr(draft.draft, "fill", slow)
    with ReadAhead(draft, PROMPT, free_cores=1) as ahead:
        assert begun.wait(60)
        assert not ahead.fill()
        go_on.set()


@pytest.mark.parametrize(
    ("torchs", "busy", "free"), [(7, 0, 7), (7, 1, 7), (7, 7, 1), (7, 8, 0), (7, 16, 0), (1, 1, 1)]
)
def test_cores_to_spare(torchs: int, busy: int, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CORES", 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: torchs)
    assert threads.free_cores(busy) == free


def test_a_fault_is_left_to_who_drafts(draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Event()

    def failing(_: list[int]) -> bool:
        begun.set()
        raise MemoryError

    monkeypatch.setattr(draft.draft, "fill", failing)
    with ReadAhead(draft, PROMPT, free_cores=1):
        assert begun.wait(60)
    assert draft.unread(PROMPT) == len(PROMPT) - 2


@pytest.mark.parametrize("cores", [1, 3])
def test_the_target_keeps_its_threads(draft: DraftModelDrafter, cores: int) -> None:
    before = torch.get_num_threads()
    with ReadAhead(draft, PROMPT, cores):
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
    for free_cores in (1, 0):
        draft.forget()
        monkeypatch.setattr(draft, "_read", Mean())
        with ReadAhead(draft, PROMPT, free_cores) as ahead:
            if free_cores:
                wait(draft)
            assert ahead.fill() == (free_cores == 0)
            assert not ahead.fill()
        took.append(draft._read.value * (len(PROMPT) - 2))
    assert took[0] < 1000 < took[1]


def test_only_what_will_be_needed_is_read(
    session: Session, draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafters = session.drafters
    used = {name for name in drafters if reader(drafters, name, PROMPT, 15, 1)}
    assert used >= {"draft", "draft-tree", "cascade"}
    assert used.isdisjoint({"plain", "lookup", "suffix", "ngram", "swift"})
    monkeypatch.setattr(draft, "_read", Mean())  # however long reading took on a busy machine
    for promise, read in ((0.0, None), (1e9, draft)):
        monkeypatch.setattr(Estimates, "ranked", lambda *_, promise=promise: [(promise, "draft")])
        session.forget()
        assert reader(drafters, "auto", PROMPT, 15, 1) is read
    monkeypatch.setattr(draft.draft, "asynchronous", True)
    assert reader(drafters, "draft", PROMPT, 15, 1) is None
    assert reader({"plain": drafters["plain"]}, "plain", PROMPT, 15, 1) is None


@pytest.mark.parametrize("free_cores", [0, 1])
def test_auto_is_told_whether_there_is_a_core_for_it(
    session: Session, free_cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(AutoDrafter, "prepare", lambda *_args: told.append(_args[-1]))
    reader(session.drafters, "auto", PROMPT, 15, free_cores)
    assert told == [free_cores == 1]


@pytest.mark.parametrize(("cores", "free"), [(3, 0), (4, 1), (8, 3)])
def test_a_target_on_the_processor_leaves_what_it_does_not_use(
    tiny_pair: PairSpec, cores: int, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "CORES", cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    target = ReferenceDecoder(Checkpoint.open(Path(tiny_pair.target.path or "")))
    assert host_runner(target, None).free_cores == free


def test_who_drafts_first_is_found_out_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    choose, lengths = AutoDrafter._choose, list[int]()

    def counted(self: AutoDrafter, text: Sequence[int], *rest: Any) -> None:
        lengths.append(len(text))
        choose(self, text, *rest)

    monkeypatch.setattr(AutoDrafter, "_choose", counted)
    story = (Message("user", "Tell me a story."),)
    for most in (12, 3):
        lengths.clear()
        list(session.generate(Generate(1, story, limits=Limits(most), speculation=Speculation.of("auto", 5))))
        assert lengths
        assert len(set(lengths)) == len(lengths)


@pytest.fixture
def in_blocks(session: Session, draft: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch) -> DraftModelDrafter:
    """Target and draft read 16 tokens at a time, one after the other."""
    monkeypatch.setattr(session, "runner", replace(session.runner, free_cores=0))
    monkeypatch.setattr(type(draft.draft.model), "block", 16)
    session.forget()
    session.shelf.clear()
    return draft


@pytest.mark.parametrize("begun", ["draft", "plain"])
def test_a_strategy_chosen_while_the_target_reads_reads_for_itself(
    session: Session, in_blocks: DraftModelDrafter, begun: str
) -> None:
    """What was chosen before has its thread at most."""
    changes = [Change(1, Speculation.of("plain" if begun == "draft" else "draft"))]

    class Changes:
        def poll(self) -> Change | None:
            return changes.pop() if changes else None

    asked = Generate(1, (Message("user", "abc " * WORTH),), limits=Limits(3), speculation=Speculation.of(begun))
    events = session.generate(asked, Changes())
    assert isinstance(next(events), Started)
    assert not in_blocks.draft.tokens
    assert isinstance(list(events)[-1], Finished)
    assert bool(in_blocks.draft.tokens) == (begun == "plain")


SHORT = 64
"""Tokens that the draft of `forgetful` holds."""


@pytest.fixture(scope="module")
def forgetful(tiny_pair: PairSpec, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A pair whose draft holds a quarter of what its target does."""
    folder = perturbed(tmp_path_factory.mktemp("short") / "draft", Path(tiny_pair.target.path or ""), 0.05)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": SHORT}))
    return load(replace(tiny_pair, draft=on_cpu(folder)), lambda _: None)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("free_cores", [0, 1])
@pytest.mark.parametrize("strategy", ["draft", "draft-tree", "cascade", "auto"])
def test_what_the_draft_cannot_hold_it_does_not_read(
    forgetful: Session, strategy: str, free_cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a chat that outgrows it, and in one that never fitted."""
    monkeypatch.setattr(forgetful, "runner", replace(forgetful.runner, free_cores=free_cores))
    draft = forgetful.drafters["draft"]
    assert isinstance(draft, DraftModelDrafter)
    for begins in (SHORT - 20, SHORT + 20):
        forgetful.forget()
        for length in (begins, SHORT + 30):
            asked = Generate(
                1, (Message("user", "a" * length),), limits=Limits(8), speculation=Speculation.of(strategy)
            )
            *_, last = forgetful.generate(asked)
            *_, plain = forgetful.generate(replace(asked, speculation=Speculation()))
            assert isinstance(last, Finished)
            assert isinstance(plain, Finished)
            assert last.token_ids == plain.token_ids
            assert len(draft.draft.tokens) <= SHORT


@pytest.mark.parametrize("strategy", ["auto", "plain"])
def test_auto_thinks_when_a_reply_is_there(session: Session, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thought = []
    monkeypatch.setattr(AutoDrafter, "rank", lambda _: thought.append(True))
    asked = Generate(1, (Message("user", "Hello."),), limits=Limits(3), speculation=Speculation.of(strategy))
    for event in session.generate(asked):
        assert not thought, event
    assert thought


@pytest.mark.parametrize("free_cores", [0, 1])
@pytest.mark.parametrize("strategy", ["draft", "plain"])
def test_replies_read_ahead(session: Session, strategy: str, free_cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started, read = [], []
    enter, draft = ReadAhead.__enter__, session.drafters["draft"]
    assert isinstance(draft, DraftModelDrafter)

    def seen(self: ReadAhead) -> ReadAhead:
        enter(self)
        started.append(self._thread is not None)
        return self

    monkeypatch.setattr(ReadAhead, "__enter__", seen)
    monkeypatch.setattr(session, "runner", replace(session.runner, free_cores=free_cores))
    session.forget()
    asked = Generate(1, (Message("user", "abc " * WORTH),), limits=Limits(3), speculation=Speculation.of(strategy))
    for event in session.generate(asked):
        if isinstance(event, Started):
            read.append(len(draft.draft.tokens) > WORTH)
    assert started == [strategy == "draft" and free_cores > 0]
    if not free_cores:  # a thread may still be at it
        assert read == [strategy == "draft"]


def test_a_reply_that_is_cancelled_waits_for_no_more_than_a_block(
    session: Session, in_blocks: DraftModelDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = []
    fill = in_blocks.draft.fill

    class Cancels:
        def poll(self) -> Cancel | None:
            return Cancel(1) if len(blocks) == 2 else None

    monkeypatch.setattr(in_blocks.draft, "fill", lambda text: (blocks.append(1), fill(text))[1])
    asked = Generate(1, (Message("user", "abc " * WORTH),), speculation=Speculation.of("draft"))
    last = list(session.generate(asked, Cancels()))[-1]
    assert isinstance(last, Finished)
    assert (last.reason, len(blocks)) == ("cancelled", 2)
