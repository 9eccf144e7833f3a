"""Our strategies and transformers on a tiny pair: the same tokens, from empty caches, with plausible times."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from specchat.bench.contender import BenchPrompt, Contender, Material, Run
from specchat.bench.ours import Ours
from specchat.bench.peers.transformers import Transformers, contenders
from specchat.bench.verify_cost import verify_cost
from specchat.engine.loading import load
from specchat.engine.protocol.events import Event, Finished
from specchat.engine.protocol.options import Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply.control import UNCONTROLLED, Control
from specchat.engine.session import Session
from tests.engine.tiny import checkpoint, on_cpu, perturbed
from tests.fake_steps import stats, steps

TEXT = (Message("user", "one two one two one"),)
MOST = 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("bench")
    target = checkpoint(root / "target", num_key_value_heads=2, tie_word_embeddings=False)
    return target, perturbed(root / "draft", target, 0.05)


@pytest.fixture(scope="module")
def session(folders: tuple[Path, Path]) -> Session:
    target, draft = (on_cpu(folder) for folder in folders)
    return load(PairSpec("tiny", "Tiny", target, draft), lambda _: None)


@pytest.fixture(scope="module")
def prompt(session: Session) -> BenchPrompt:
    return BenchPrompt("p", "chat", TEXT, tuple(session.tokenizer.prompt(TEXT)))


class Scripted(Session):
    """Answers with steps that are trees of three places with three candidates each."""

    def __init__(self) -> None:
        self.made = steps("one two three four five", (2, 0, 3), length=9, candidates=3)

    def generate(self, request: Generate, control: Control = UNCONTROLLED) -> Iterator[Event]:
        yield from self.made
        yield Finished(request.id, "stop", "", (), stats(self.made, 0, 0.0))


def test_drafts_that_are_trees_are_counted_by_place(prompt: BenchPrompt) -> None:
    run = Ours(Scripted(), Speculation("draft", 9), Sampling()).run(prompt, MOST)
    assert (run.tested, run.accepted) == ((3, 1, 1), (1, 1, 0))
    assert run.drafted == (3,) * 9
    assert sum(run.kept) == sum(run.accepted)
    assert run.first_drafted == 9
    assert run.first_draft_ms == Scripted().made[0].draft_ms


def test_what_is_done_after_a_reply_does_not_count(prompt: BenchPrompt) -> None:
    now = 0.0

    class Thinks(Scripted):
        def generate(self, request: Generate, control: Control = UNCONTROLLED) -> Iterator[Event]:
            nonlocal now
            now += 2.0
            yield from super().generate(request, control)
            now += 3.0

    assert Ours(Thinks(), Speculation(), Sampling(), lambda: now).run(prompt, MOST).seconds == 2.0


@pytest.fixture(scope="module")
def theirs(folders: tuple[Path, Path], session: Session) -> list[Transformers]:
    return list(contenders(Material(*folders, None, None, False, session.eos, Sampling(), session.info.context, 6)))


def test_ours_write_the_same_and_count_what_was_tested(session: Session, prompt: BenchPrompt) -> None:
    plain = Ours(session, Speculation(), Sampling())
    draft = Ours(session, Speculation("draft", 4), Sampling())
    assert (plain.name, draft.name) == ("plain", "draft x4")
    first, second = plain.run(prompt, MOST), draft.run(prompt, MOST)
    assert first.tokens == second.tokens
    assert len(first.tokens) > 5
    assert first.tested == ()
    assert second.stats is not None
    assert sum(second.tested) == second.stats.num_tested_draft_tokens > 0
    assert sum(second.accepted) == second.stats.num_accepted_draft_tokens
    assert list(second.tested) == sorted(second.tested, reverse=True)
    for run in (first, second):
        assert 0.0 < run.first_seconds < run.seconds
        assert 1 <= run.first_tokens < len(run.tokens)
        assert run.stats is not None
        assert run.stats.reused_tokens == 0


def test_replies_start_from_empty_caches(session: Session, prompt: BenchPrompt) -> None:
    draft = Ours(session, Speculation("draft", 4), Sampling())
    draft.run(prompt, MOST)
    again = draft.run(prompt, MOST)
    assert again.stats is not None
    assert again.stats.reused_tokens == 0
    draft.close()
    assert session.target.tokens == []
    assert session.runner.draft is not None
    assert session.runner.draft.tokens == []


def test_transformers_writes_what_we_write(session: Session, prompt: BenchPrompt, theirs: list[Transformers]) -> None:
    """In float32 two decoders can part at a tie; this text has none within its length."""
    mine = Ours(session, Speculation(), Sampling()).run(prompt, MOST)
    assert [c.rival for c in theirs] == ["plain", "draft", "lookup"]
    for contender in theirs:
        run = contender.run(prompt, MOST)
        assert run.tokens == mine.tokens, contender.name
        assert 0.0 < run.first_seconds < run.seconds
        assert 1 <= run.first_tokens < len(run.tokens)
        assert run.stats is None


def test_transformers_keeps_the_faster_number_of_threads(prompt: BenchPrompt, theirs: list[Transformers]) -> None:
    before = torch.get_num_threads()
    theirs[0].warm_up(prompt)
    assert "threads, the faster" in theirs[0].note
    assert torch.get_num_threads() == before


def test_one_lucky_trial_does_not_choose_the_threads(
    prompt: BenchPrompt, theirs: list[Transformers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads are faster while nothing else runs, which is rarely."""
    contender, trials = theirs[0], Counter[int]()

    def run(*_: object) -> Run:
        trials[contender._threads] += 1
        seconds = 1.0 if contender._threads == 1 else 0.5 if trials[2] == 2 else 9.0
        return Run((1, 2, 3), seconds, 0.1, 1)

    monkeypatch.setattr(torch.multiprocessing, "cpu_count", lambda: 2)
    monkeypatch.setattr(contender, "run", run)
    contender.warm_up(prompt)
    assert contender._threads == 1
    assert min(trials.values()) > 2


def test_contenders_fit_the_protocol(session: Session, theirs: list[Transformers]) -> None:
    everyone: list[Contender] = [Ours(session, Speculation(), Sampling()), *theirs]
    assert len({contender.name for contender in everyone}) == len(everyone)


def test_verify_cost_measures_every_size(session: Session) -> None:
    costs = verify_cost(session.runner, lambda _: None, lambda: True)
    assert [cost.rows for cost in costs] == list(range(1, 17))
    assert costs[0].ratio == 1.0
    assert all(cost.ms.low <= cost.ms.median <= cost.ms.high for cost in costs)
    assert all(cost.ms.median > 0 for cost in costs)
    assert session.target.tokens == []


def test_verify_cost_ends_when_it_is_not_wanted(session: Session) -> None:
    assert verify_cost(session.runner, lambda _: None, lambda: False) == []
