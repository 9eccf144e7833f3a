"""Drafts by a model on the host, made while the device verifies: never another text, and passes that are spared."""

from collections.abc import Callable

import pytest
import torch

from measure.other_drafts import permuted
from specchat.engine.cross_tokenizer.model import wrap_draft
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.decoding.host_loops import HostLoops
from specchat.engine.device import beside
from specchat.engine.device.beside import LoopsAhead
from specchat.engine.device.clock import Clock
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, Folders, decoder
from tests.device.test_clock import THERE, FakeEvent
from tests.device.test_decoding import PROMPT, SAMPLINGS, write
from tests.engine.tiny import VOCAB


@pytest.fixture(autouse=True)
def _slow_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verify pass lasts as long as there is something to draft."""
    monkeypatch.setattr(Clock, "passed", lambda _: False)
    monkeypatch.setattr(beside, "LIKELY", 0.0)


@pytest.fixture(scope="module")
def often(shallow: Folders) -> Runner:
    """A draft that often agrees."""
    return device_runner(decoder(shallow.target), ReferenceDecoder(Checkpoint.open(shallow.draft)), VOCAB, DEVICE)


@pytest.fixture(scope="module")
def always(shallow: Folders) -> Runner:
    """The target drafts for itself, on the host."""
    return device_runner(decoder(shallow.target), ReferenceDecoder(Checkpoint.open(shallow.target)), VOCAB, DEVICE)


@pytest.fixture(scope="module")
def others(shallow: Folders, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A draft whose tokens have other numbers."""
    folder = permuted(tmp_path_factory.mktemp("others"), shallow.draft)
    target, draft = Checkpoint.open(shallow.target), Checkpoint.open(folder)
    vocabulary_map = VocabularyMap.of(target.tokenizer(), draft.tokenizer())
    return device_runner(
        decoder(shallow.target), wrap_draft(ReferenceDecoder(draft), vocabulary_map, VOCAB), VOCAB, DEVICE
    )


def test_cores_are_free_while_a_device_reads(often: Runner) -> None:
    assert often.free_cores == torch.get_num_threads()


class Passes:
    """Counts the passes of the draft model, those while the device verifies apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before = self.meanwhile = 0
        self._verifying = False
        one, go_on = HostLoops._draft_token, LoopsAhead.draft_ahead

        def counted(drafts: HostLoops, *of: object) -> bool:
            self.meanwhile += self._verifying
            self.before += not self._verifying
            return one(drafts, *of)  # type: ignore[arg-type]

        def watched(drafts: LoopsAhead, done: Callable[[], bool]) -> None:
            self._verifying = True
            go_on(drafts, done)
            self._verifying = False

        monkeypatch.setattr(HostLoops, "_draft_token", counted)
        monkeypatch.setattr(LoopsAhead, "draft_ahead", watched)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_text_is_the_plain_one(often: Runner, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = write(often, "plain", 0, SAMPLINGS[name])
    passes = Passes(monkeypatch)
    assert write(often, "draft", 3, SAMPLINGS[name]) == plain
    assert passes.meanwhile


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_draft_of_other_tokens_changes_no_text(others: Runner, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = write(others, "plain", 0, SAMPLINGS[name])
    passes = Passes(monkeypatch)
    assert write(others, "draft", 3, SAMPLINGS[name]) == plain
    assert passes.meanwhile
    tree = next(status for status in others.statuses if status.name == "draft-tree")
    assert (tree.available, "draft-tree" in others.drafters) == (False, False)
    assert "tokens differ" in tree.reason


def test_what_fits_is_the_start_of_the_next_draft(always: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is accepted and the target's own token is the draft's: after the first step no pass is waited for."""
    passes = Passes(monkeypatch)
    made = write(always, "draft", 3, Sampling(), tokens=12, refused=False)
    assert len(made) == 12
    assert (passes.before, passes.meanwhile) == (3, 3 * 4)


def test_a_pass_that_the_outcome_ends_goes_on_in_the_next_draft(
    always: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two passes find the token after the draft and one that follows; the next draft has the others to make."""
    asked = iter([False, False, True] * 9)
    monkeypatch.setattr(Clock, "passed", lambda _: next(asked))
    passes = Passes(monkeypatch)
    write(always, "draft", 3, Sampling(seed=7, temperature=0.9), tokens=12, refused=False)
    assert (passes.before, passes.meanwhile) == (3 + 2 + 2, 3 * 2)


def test_what_does_not_fit_is_dropped(shallow: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft whose tokens never are the target's."""
    draft = ReferenceDecoder(Checkpoint.open(shallow.draft))
    pair = device_runner(decoder(shallow.target), draft, VOCAB, DEVICE)
    plain = write(pair, "plain", 0, Sampling(), tokens=6)
    logits = draft.logits
    monkeypatch.setattr(draft, "logits", lambda hidden: -logits(hidden))
    passes = Passes(monkeypatch)
    assert write(pair, "draft", 2, Sampling(), tokens=6)[:6] == plain
    assert passes.before >= 2 * 3
    assert passes.meanwhile


def test_strategies_lengths_and_acceptance_change(often: Runner) -> None:
    sampling = Sampling(seed=11, temperature=0.7)
    plain = write(often, "plain", 0, sampling, tokens=16)
    often.target.keep(0)
    often.target.begin(PROMPT)
    for drafter in often.drafters.values():
        drafter.begin(PROMPT)
    reply = often.reply(sampling, list(PROMPT), ())
    for strategy, length in (("draft", 4), ("draft", 1), ("lookup", 2), ("draft", 3), ("draft-tree", 3), ("draft", 3)):
        reply.step(often.drafters[strategy], length, "coupled")
    reply.close()
    made = reply.committed[len(PROMPT) :]
    assert made[:16] == plain[: len(made)]


@pytest.mark.parametrize("acceptance", ["ratio", "block"])
def test_nothing_is_made_ahead_where_a_text_depends_on_the_draft(
    often: Runner, acceptance: Acceptance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much is made depends on time, and one row of a draft has other last bits than several."""
    passes = Passes(monkeypatch)
    write(often, "draft", 3, SAMPLINGS["sampled"], acceptance, tokens=6)
    assert passes.before
    assert not passes.meanwhile


def test_a_draft_ends_with_the_context(always: Runner) -> None:
    prompt = [65 + i % 20 for i in range(CONTEXT - 8)]
    texts = []
    for strategy in ("plain", "draft"):
        always.target.keep(0)
        always.target.begin(prompt)
        drafter = always.drafters[strategy]
        drafter.begin(prompt)
        reply = always.reply(Sampling(), list(prompt), ())
        while reply.room > 1:
            reply.step(drafter, 3, "coupled")
        reply.close()
        texts.append(reply.committed)
    assert texts[0][: CONTEXT - 1] == texts[1][: CONTEXT - 1]


def test_a_text_that_ends_inside_a_draft_leaves_nothing(always: Runner) -> None:
    plain = write(always, "plain", 0, Sampling(), tokens=10)
    end = plain[5]
    ended = write(always, "draft", 3, Sampling(), eos=(end,), tokens=10)
    assert ended == plain[: plain.index(end) + 1]
    assert write(always, "draft", 3, Sampling(), tokens=10) == plain


def test_an_unlikely_draft_is_not_gone_on_from(always: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "LIKELY", 1.01)
    passes = Passes(monkeypatch)
    write(always, "draft", 3, Sampling(), tokens=6)
    assert not passes.meanwhile


def test_the_clock_says_when_the_device_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert Clock(torch.device("cpu")).passed()
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(FakeEvent, "query", lambda event: event.at > 0, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", "the stream of {}".format)
    clock = Clock(THERE)
    clock.start()
    clock.drafted()
    assert not clock.passed()
    clock.verified()
    assert clock.passed()


def test_repeated_steps_leave_the_text_as_it_was(often: Runner) -> None:
    expected = write(often, "plain", 0, SAMPLINGS["penalised"])
    assert write(often, "draft", 3, SAMPLINGS["penalised"], repeats=2) == expected
