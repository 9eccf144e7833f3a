"""Early exit: the first layers' work is done once, and what is checked is bit for bit a whole pass."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.drafters.early_exit import MOST_EXITS, ROUNDS, EarlyExitDrafter, ExitSearch
from specchat.engine.drafters.skip_search import SEARCH_EVERY, WINDOW
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.passes import NOTHING, PassRows, Skip
from specchat.engine.protocol.options import Acceptance, Limits, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_runner
from specchat.engine.runners.runner import DraftingLayers
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_costs import step
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import checkpoint, on_cpu

Make = Callable[[Checkpoint], ReferenceDecoder | CpuDecoder]
PROMPT = [72, 101, 108, 108, 111, 32, 72, 101, 108]
LAYERS, EXIT = 4, 2


@pytest.fixture(params=[ReferenceDecoder, CpuDecoder])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "target", num_key_value_heads=2, tie_word_embeddings=False)


@pytest.fixture
def _to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are as long as they may be."""
    monkeypatch.setattr(LengthPolicy, "ends", lambda *_: False)


@pytest.mark.usefixtures("_to_the_limit")
@pytest.mark.parametrize("acceptance", ["coupled", "ratio"])
def test_what_is_checked_is_a_whole_pass(
    folder: Path, make: Make, acceptance: Acceptance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logits, the cache and the hidden states that heads look at; and no layer sees a row twice."""
    decoder, alone = make(Checkpoint.open(folder)), make(Checkpoint.open(folder))
    taps, expected = decoder.record_states([0, 1, EXIT, 3, LAYERS]), alone.record_states([0, 1, EXIT, 3, LAYERS])
    ran = [0] * LAYERS
    read: list[Tensor] = []
    run, logits = decoder.run_and_record, decoder.logits

    def counted(x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        for layer in layers:
            ran[layer] += len(x)
        return run(x, layers, rows, skip)

    def kept(hidden: Tensor) -> Tensor:
        read.append(logits(hidden).clone())
        return read[-1]

    monkeypatch.setattr(decoder, "run_and_record", counted)
    monkeypatch.setattr(decoder, "logits", kept)
    monkeypatch.setattr(
        decoder, "logits_after", lambda fed, start, layout: kept(decoder.forward(fed, start, layout=layout))
    )
    runner = host_runner(decoder, None, DraftingLayers(EXIT))
    runner.target.begin(PROMPT)
    drafter = runner.drafters["early-exit"]
    drafter.begin(PROMPT)
    decoding = runner.reply(Sampling(seed=2, temperature=1.3), list(PROMPT), ())
    kinds = set()
    for length in (3, 1, 5, 2, 0, 4):
        text = list(decoding.committed)
        ran[:] = [0] * LAYERS
        outcome = decoding.step(drafter, length, acceptance)
        assert (outcome.drafted, outcome.begun) == (length, length)
        assert ran == [1 + length] * LAYERS
        alone.forward(text, 0)
        whole = alone.logits(alone.forward([text[-1], *outcome.drafts], len(text) - 1))
        assert torch.equal(read[-1], whole)
        end = len(text) + length
        assert torch.equal(torch.stack(decoder.cache.keys)[:, :, :end], torch.stack(alone.cache.keys)[:, :, :end])
        assert torch.equal(torch.stack(decoder.cache.values)[:, :, :end], torch.stack(alone.cache.values)[:, :, :end])
        for layer in taps.layers:
            assert torch.equal(taps.at(layer, 0, end), expected.at(layer, 0, end))
        kinds.add(outcome.accepted < outcome.drafted)
    assert kinds == {False, True}


@pytest.mark.usefixtures("_to_the_limit")
def test_the_first_layers_and_the_head_draft(folder: Path, make: Make) -> None:
    decoder, alone = make(Checkpoint.open(folder)), make(Checkpoint.open(folder))
    runner = host_runner(decoder, None, DraftingLayers(EXIT))
    runner.target.begin(PROMPT)
    decoding = runner.reply(Sampling(), list(PROMPT), ())
    outcome = decoding.step(runner.drafters["early-exit"], 4, "coupled")
    text = list(PROMPT)
    for token in outcome.drafts:
        hidden = alone.run_layers(alone.embed(text), range(EXIT), PassRows(text, 0))
        assert token == int(alone.logits(hidden[-1:])[0].argmax())
        text.append(token)


def test_a_trial_tells_how_many_tokens_the_first_layers_would_have_drafted_right(
    folder: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, alone = make(Checkpoint.open(folder)), make(Checkpoint.open(folder))
    runner = host_runner(decoder, None)
    drafter = runner.drafters["early-exit"]
    assert isinstance(drafter, EarlyExitDrafter)
    # What the first layer alone would write, but for some tokens.
    text = list(PROMPT)
    for _ in range(WINDOW + 1):
        hidden = alone.run_layers(alone.embed(text), range(1), PassRows(text, 0))
        text.append(int(alone.logits(hidden[-1:])[0].argmax()))
    told: list[tuple[int, float]] = []
    for wrong, right in ((0, 1.0), (1, 1.0 - 1 / WINDOW)):
        text[-1] += wrong
        runner.target.begin(text)
        runner.executor.begin(ReplyRules(Sampling()), text)
        runner.executor.start("coupled")
        drafter.forget()
        drafter.begin(PROMPT)
        monkeypatch.setattr(drafter.search, "add", lambda *trial: told.append(trial))
        for _ in range(SEARCH_EVERY):
            assert not told
            drafter.propose(text, 1)
        assert told == [(1, right)]
        told.clear()
        drafter.begin(text[:-WINDOW])
        for _ in range(SEARCH_EVERY):
            drafter.propose(text, 1)
        assert not told, "the prompt is none of the target's writing"


def test_where_to_leave_is_found_while_it_writes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = session.drafters["early-exit"]
    assert isinstance(drafter, EarlyExitDrafter)
    drafter.forget()
    assert drafter.search.best == 1
    target = session.target.model
    assert isinstance(target, CachedDecoder)
    last = finished(reply(session, "abcabc", Sampling(), Limits(WINDOW + 60), Speculation("early-exit", 2)))
    assert drafter.search.done
    # A trial leaves the cache as it was.
    tokens = list(session.target.tokens)
    kept = torch.stack(target.cache.keys)[:, :, : len(tokens)].clone()
    session.target.keep(0)
    session.target.begin([*tokens, 0])
    assert torch.equal(kept, torch.stack(target.cache.keys)[:, :, : len(tokens)])
    plain = finished(reply(session, "abcabc", Sampling(), Limits(WINDOW + 60), Speculation()))
    assert last.token_ids == plain.token_ids
    # Nothing is tried any more.
    monkeypatch.setattr(target, "likeliest", None)
    reply(session, "abcabc", Sampling(), Limits(WINDOW + 60), Speculation("early-exit", 2))
    drafter.forget()
    assert not drafter.search.done


def found(shares: dict[int, float], layers: int = 8, head: float = 1.0) -> int:
    search = ExitSearch(layers, head)
    while not search.done:
        search.add(search.next, shares[search.next])
    return search.best


def test_the_layers_that_promise_most_are_taken() -> None:
    assert found({1: 0.0, 2: 0.0, 3: 0.0, 4: 0.0}) == 1
    assert found({1: 0.2, 2: 0.3, 3: 0.9, 4: 0.92}) == 3
    assert found({1: 0.7, 2: 0.9, 3: 0.9, 4: 0.9}) == 2
    # A heavy head makes each draft dear, so that surer ones are worth their layers.
    assert found({1: 0.6, 2: 0.75, 3: 0.75, 4: 0.75}, head=0.0) == 1
    assert found({1: 0.6, 2: 0.75, 3: 0.75, 4: 0.75}, head=4.0) == 2


@pytest.mark.parametrize("layers", [2, 3, 8, 32, 80])
def test_some_numbers_of_layers_are_tried_in_turn(layers: int) -> None:
    search = ExitSearch(layers, 1.0)
    assert 1 <= search.best < layers
    tried = []
    while not search.done:
        tried.append(search.next)
        search.add(search.next, 0.5)
    assert len(tried) == ROUNDS * len(set(tried)) <= ROUNDS * MOST_EXITS
    assert tried == [*sorted(set(tried))] * ROUNDS
    assert min(tried) >= 1
    assert max(tried) <= max(1, layers // 2)


def test_a_number_that_is_given_is_kept() -> None:
    search = ExitSearch(8, 1.0, chosen=5)
    assert (search.best, search.done) == (5, True)


def test_a_pair_says_where_its_target_is_left(folder: Path) -> None:
    spec = PairSpec("p", "P", on_cpu(folder), exit_layer=3)
    drafter = load(spec, lambda _: None).drafters["early-exit"]
    assert isinstance(drafter, EarlyExitDrafter)
    assert drafter.search.best == 3
    refused = load(replace(spec, exit_layer=4), lambda _: None)
    status = refused.info.strategy("early-exit")
    assert (status.available, status.reason) == (False, "exit_layer is 4, and the target has 4 layers: choose fewer")


def test_a_target_of_one_layer_is_refused(tmp_path: Path) -> None:
    only = checkpoint(tmp_path / "one", num_hidden_layers=1)
    status = load(PairSpec("p", "P", on_cpu(only)), lambda _: None).info.strategy("early-exit")
    assert status.reason == "the target has only 1 layer: none to leave out"


def test_checks_that_drafting_began_are_measured_apart() -> None:
    """They take less: that must not look like a faster machine, nor make checks of other families cheap."""
    costs = StepCosts(lambda: 0.0)
    for _ in range(20):
        costs.add("draft", step(0, 0.0, 1.0))
        costs.add("draft", step(4, 1.0, 2.0))
    before = costs.verify_ms()
    for _ in range(20):
        costs.add("early-exit", replace(step(4, 1.0, 0.8), begun=4))
    assert costs.usual.verify_ms == pytest.approx(0.8)
    assert costs.load.value == pytest.approx(1.0)
    assert costs.verify_ms() == pytest.approx(before)
    # The machine turns slow: this is seen by them too.
    for _ in range(40):
        costs.add("early-exit", replace(step(4, 3.0, 2.4), begun=4))
    assert costs.load.value == pytest.approx(3.0, rel=0.1)
