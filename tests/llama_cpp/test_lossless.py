"""Same seed, same tokens: every strategy that a GGUF pair has, on the CPU; and the texts are our own decoder's."""

import re
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from specchat.config.paths import demo_model
from specchat.engine.decoding.guard import RoughGuard
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.row_invariance import MOST_ROWS
from specchat.engine.llama_cpp.export import Kind, export
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import GgufOptions, PairSpec
from specchat.engine.session import Session
from specchat.engine.strategies import HEADED, STRATEGIES
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_lossless import LENGTHS, PROMPTS, SAMPLINGS, finished, reply, reuse_the_prefix, shown
from tests.engine.tiny import on_cpu
from tests.llama_cpp.conftest import EXACT, loaded

pytestmark = pytest.mark.needs_llama

DRAFTING = ("auto", "draft", "lookup", "suffix", "ngram", "cascade")
KINDS: tuple[Kind, ...] = ("f32", "q8_0", "q4_0")
ROUNDED = GgufOptions(threads=1)
"""With a cache of float16."""
REFUSED = ("draft-tree", *HEADED, "lookahead", "early-exit", "swift")


def test_the_strategies_that_there_are(session: Session) -> None:
    assert {"plain", *DRAFTING, *REFUSED} == set(STRATEGIES)
    assert {s.name for s in session.info.strategies if s.available} == {"plain", *DRAFTING}
    assert all(session.info.strategy(name).reason.startswith("llama.cpp ") for name in REFUSED)


def test_rows_are_alike_and_that_is_said(session: Session, demo: Session) -> None:
    for one in (session, demo):
        assert re.match("row-invariant: passes of [12] to 16 rows compared bit for bit", one.info.notes.exactness)
        model = one.target.model
        assert isinstance(model, GgufModel)
        model.write(range(100), 0)
        assert torch.equal(model.next_logits(7, 100), model.forward([7, 8, 9], 100)[0])
        one.target.keep(0)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_strategy_and_length_writes_what_plain_writes(session: Session, name: str) -> None:
    drafted, accepted = Counter[str](), Counter[str]()
    few = dict.fromkeys(session.tokenizer.encode("abc"), 9.0)
    turned = list(SAMPLINGS).index(name)
    each = [(prompt, {}, (LENGTHS[(at + turned) % len(LENGTHS)],)) for at, prompt in enumerate(PROMPTS)]
    for seed, (prompt, bias, lengths) in enumerate([*each, ("abcab", few, LENGTHS)]):
        sampling = replace(SAMPLINGS[name], seed=seed, logit_bias=SAMPLINGS[name].logit_bias | bias)
        plain = finished(reply(session, prompt, sampling, Limits(36), Speculation()))
        for strategy, length in product(DRAFTING, lengths):
            last = finished(reply(session, prompt, sampling, Limits(36), Speculation(strategy, length)))
            assert last.token_ids == plain.token_ids, (strategy, length, prompt)
            assert (last.text, last.reason) == (plain.text, plain.reason)
            drafted[strategy] += last.stats.num_draft_tokens
            accepted[strategy] += last.stats.num_accepted_draft_tokens
    for strategy in DRAFTING:
        assert 0 < accepted[strategy] < drafted[strategy], strategy


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_goes_alone_leaves_the_text_as_it_is(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """What rows that are padded write is written, warm and cold, whatever is checked how often.

    A prompt with each sampling, the other one with the next kind.
    """
    for folder in folders:
        export(Checkpoint.open(folder), tmp_path / f"{folder.name}.gguf", kind)
    session = loaded(tmp_path / "target.gguf", tmp_path / "draft.gguf", EXACT if kind == "f32" else ROUNDED)
    model, executor = session.target.model, session.runner.executor
    assert isinstance(model, GgufModel)
    assert isinstance(executor, HostExecutor)
    monkeypatch.setattr(model, "padding", (0, 2, *range(2, MOST_ROWS + 1)))
    again = Counter[str]()
    for seed, name in enumerate(SAMPLINGS):
        prompt = ("abcab", "the cat")[(seed + KINDS.index(kind)) % 2]
        sampling = replace(SAMPLINGS[name], seed=seed)
        session.forget()
        monkeypatch.setattr(model, "alone", False)
        padded = finished(reply(session, prompt, sampling, Limits(40), Speculation()))
        monkeypatch.setattr(model, "alone", True)
        monkeypatch.setattr(executor, "_guard", RoughGuard(model, 1e-3 if kind == "f32" else 1.0))
        for strategy in ("plain", "lookup", "plain", "draft", "auto"):
            last = finished(reply(session, prompt, sampling, Limits(40), Speculation.of(strategy)))
            assert (last.token_ids, last.text) == (padded.token_ids, padded.text), (name, strategy)
            again[strategy] += last.stats.num_choices_again
    assert again["plain"] > 0
    assert again["lookup"] > 0


@pytest.mark.parametrize("strategy", ["plain", *DRAFTING])
def test_stop_conditions_hold_within_a_draft(session: Session, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "eos", frozenset())
    speculation = Speculation.of(strategy)
    for sampling in (SAMPLINGS["greedy"], SAMPLINGS["everything"]):
        free = finished(reply(session, "abc", sampling, Limits(40), Speculation()))
        for cut in (1, 2, 5, 11):
            monkeypatch.setattr(session, "eos", frozenset({free.token_ids[cut]}))
            last = finished(reply(session, "abc", sampling, Limits(40), speculation))
            assert last.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[cut]) + 1]
            assert last.reason == "stop"
        monkeypatch.setattr(session, "eos", frozenset())
        events = reply(session, "abc", sampling, Limits(40, (free.text[7:10],)), speculation)
        assert finished(events).text == shown(events) == free.text[: free.text.index(free.text[7:10])]
        for limit in (0, 1, 9):
            assert (
                finished(reply(session, "abc", sampling, Limits(limit), speculation)).token_ids
                == (free.token_ids[:limit])
            )
        full = finished(reply(session, "ab" * 110, sampling, Limits(), speculation))
        assert full.reason == "context"
        assert full.stats.prompt_tokens + len(full.token_ids) == session.info.context


def test_the_next_turn_reuses_the_prefix_and_changes_nothing(session: Session) -> None:
    reuse_the_prefix(session, 10)


def test_a_draft_of_our_own_decoder_drafts_for_a_gguf_target(
    session: Session, files: tuple[Path, Path], folders: tuple[Path, Path]
) -> None:
    mixed = loaded(files[0], folders[1])
    for sampling in (SAMPLINGS["greedy"], SAMPLINGS["T=1"]):
        plain = finished(reply(session, "abc", sampling, Limits(60), Speculation()))
        last = finished(reply(mixed, "abc", sampling, Limits(60), Speculation("draft", 5)))
        assert last.token_ids == plain.token_ids
        assert last.stats.num_accepted_draft_tokens > 0


def test_the_demo_writes_what_our_own_decoder_writes(demo: Session) -> None:
    ours = load(PairSpec("demo", "Demo", on_cpu(demo_model("target"))), lambda _: None)
    for prompt in ("Tell me a story about a fox.", "What is 12 plus 30?", "Write a function that adds two numbers."):
        theirs = finished(reply(ours, prompt, Sampling(), Limits(48), Speculation()))
        for strategy in ("plain", "draft", "lookup"):
            last = finished(reply(demo, prompt, Sampling(), Limits(48), Speculation.of(strategy)))
            assert (last.token_ids, last.text) == (theirs.token_ids, theirs.text), (prompt, strategy)


def test_real_weights_of_others_write_the_same_with_every_strategy(shared_data: Path) -> None:
    checkpoints = shared_data / "checkpoints"
    stories = loaded(checkpoints / "stories260K-f32.gguf", checkpoints / "stories260K-q8")
    for seed, sampling in enumerate(SAMPLINGS.values()):
        sampling = replace(sampling, seed=seed)
        prompt = "Once upon a time there was a cat. The cat"
        plain = finished(reply(stories, prompt, sampling, Limits(80), Speculation()))
        for strategy in DRAFTING:
            last = finished(reply(stories, prompt, sampling, Limits(80), Speculation(strategy, 8)))
            assert last.token_ids == plain.token_ids, strategy
