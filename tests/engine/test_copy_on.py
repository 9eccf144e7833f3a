"""A model's draft that ends with a copy: when, how it is judged, and that the text and its law stay."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from specchat.engine.bandit.copies import SHORTEST, Copies, CopyOn
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.bandit.estimates import Estimates
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.draft import Chain, Copy, Follow
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.drafters.lookup import LookupDrafter
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.reply.reply import source
from specchat.engine.session import Session
from tests.engine.test_lossless import PROMPTS, SAMPLINGS, finished, reply

CHECKS = [0.0, *(1 + 0.1 * row for row in range(16))]
CHEAP, DEAR = 0.0, 0.5
"""Milliseconds of a model's token."""


def watched(copy: Copy, copies: Copies, goes_on: float = 0.5, draft_ms: float = CHEAP, limit: int = 12) -> CopyOn:
    """A draft begins after which `copy` could be copied."""
    watching = CopyOn(lambda *asked: replace(copy, tokens=copy.tokens[: asked[2]]), lambda _: copies)
    watching.start([1, 2], limit, 1.0, lambda: goes_on, CHECKS, draft_ms)
    return watching


def test_a_copy_is_taken_where_it_brings_more_than_the_model() -> None:
    copy = Copy([5] * 12, matched=SHORTEST)
    assert watched(copy, Copies(0.9, 0.95), goes_on=0.5).copy([3], lambda: 1.0)
    assert not watched(copy, Copies(0.6, 0.6), goes_on=0.9, draft_ms=CHEAP).copy([3], lambda: 1.0)
    assert watched(copy, Copies(0.6, 0.6), goes_on=0.9, draft_ms=DEAR).copy([3], lambda: 1.0)
    assert not watched(copy, Copies(0.05, 0.5), goes_on=0.05, draft_ms=DEAR).copy([3], lambda: 1.0), "neither pays"
    assert not watched(copy, Copies(0.9, 0.95)).copy([3], lambda: 0.05), "what is before it hardly stays"
    assert not watched(replace(copy, matched=SHORTEST - 1), Copies(0.9, 0.95)).copy([3], lambda: 1.0)


def test_a_copy_is_as_long_as_pays() -> None:
    def length(later: float) -> int:
        return len(watched(Copy([5] * 12, matched=8), Copies(0.9, later)).copy([3, 4], lambda: 1.0))

    assert length(0.999) == 10
    assert 1 < length(0.4) < length(0.6) < 10


def test_rows_cost_what_they_cost_after_what_was_drafted() -> None:
    """Up to four rows are cheap here and each further one takes as long as a plain step."""
    checks = [0.0, 1.0, 1.0, 1.0, 1.0, *(float(row) for row in range(2, 14))]
    for made in (1, 2, 3):
        watching = CopyOn(lambda *_: Copy([5] * 8, matched=8), lambda _: Copies(0.9, 0.9))
        watching.start([1, 2], 12, 1.0, lambda: 0.2, checks, DEAR)
        assert len(watching.copy([3] * made, lambda: 1.0)) == 3 - made or (made == 3 and not watching.taken)


def test_a_copy_is_judged_taken_or_not() -> None:
    for first in (0.9, 0.3):
        copies = Copies(first, 0.5)
        watching = watched(Copy([5, 6], matched=8), copies, goes_on=0.6)
        assert bool(watching.copy([3], lambda: 1.0)) == watching.taken == (first == 0.9)
        before = copies.gain(1, 1.0, 0.0, CHECKS)[0]
        watching.observe([4])
        assert copies.gain(1, 1.0, 0.0, CHECKS)[0] == before, "the model's token was refused: nothing is known"
        watching.observe([3, 5, 6])
        assert copies.gain(1, 1.0, 0.0, CHECKS)[0] > before
        for _ in range(20):
            watching.observe([3, 9])
        assert copies.gain(1, 1.0, 0.0, CHECKS)[0] < before


def test_lookup_goes_on_after_what_was_drafted() -> None:
    lookup = LookupDrafter(Occurrences())
    text = [1, 2, 3, 4, 5, 6, 9, 1]
    lookup.begin(text)
    lookup.propose(text, 4)
    copy = lookup.after(text, [2, 3], 3)
    assert (copy.tokens, copy.matched) == ([4, 5, 6], 3)
    assert not lookup.after(text, [7, 7], 3).tokens
    assert lookup.after(text, [2], 9).tokens == [3, 4, 5, 6, 9, 1, 2, 3, 4], "repetition repeats"


def auto_of(session: Session) -> AutoDrafter:
    drafter = session.drafters["auto"]
    assert isinstance(drafter, AutoDrafter)
    return drafter


@pytest.fixture
def often_joint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model drafts in every step, and what can be copied after its tokens is."""
    monkeypatch.setattr("specchat.engine.bandit.copies.SHORTEST", 2)
    monkeypatch.setattr(Estimates, "best", lambda *_: ("draft", 1e6))
    monkeypatch.setattr("specchat.engine.bandit.copies.model_gain", lambda *_: 0.0)
    monkeypatch.setattr(Copies, "gain", lambda _self, longest, *_: (1.0, longest))


@pytest.mark.rotated(3)
@pytest.mark.usefixtures("often_joint")
@pytest.mark.parametrize("name", ["greedy", "greedy penalties", "everything"])
def test_drafts_that_end_with_a_copy_do_not_change_the_text(
    session: Session, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    monkeypatch.setattr(CopyOn, "observe", lambda _, new: judged.append(len(new)))
    few = dict.fromkeys(session.tokenizer.backend.encode("abc").ids, 9.0)
    sources = Counter[str]()
    joint = 0
    for seed, prompt in enumerate(PROMPTS):
        sampling = SAMPLINGS[name]
        sampling = replace(sampling, seed=seed, logit_bias=sampling.logit_bias | few)
        plain = finished(reply(session, prompt, sampling, Limits(60), Speculation()))
        for length in (4, 15):
            events = reply(session, prompt, sampling, Limits(60), Speculation("auto", length))
            assert finished(events).token_ids == plain.token_ids
            for step in (event for event in events if isinstance(event, Step) and event.strategy == "auto"):
                copied = [draft.probability is None for draft in step.drafts]
                assert copied == sorted(copied)
                assert len(set(copied)) == 2
                sources.update(piece.source for piece in step.pieces)
                joint += 1
    assert len(judged) >= joint > 0
    assert min(sources["lookup"], sources["draft"]) > 0 == sources["auto"]


def test_each_token_of_such_a_draft_has_its_own_source() -> None:
    outcome = StepOutcome((1, 2, 3, 4), (1, 2, 3, 9), (), 4, (1, 2, 3), 0.0, 0.0, sources=("draft", "lookup"), switch=2)
    assert [source(outcome, i) for i in range(4)] == ["draft", "draft", "lookup", "target"]


@pytest.mark.usefixtures("often_joint")
def test_the_draft_model_s_cache_holds_no_more_than_it_went_over(session: Session) -> None:
    few = dict.fromkeys(session.tokenizer.backend.encode("abc").ids, 9.0)
    cached = session.runner.draft
    assert cached is not None
    events = reply(session, "abc", Sampling(logit_bias=few), Limits(60), Speculation("auto", 9))
    assert any(event.strategy == "auto" for event in events if isinstance(event, Step))
    model = cached.model
    assert isinstance(model, CpuDecoder)
    tokens = list(cached.tokens)
    assert len(tokens) > 10
    kept = torch.stack(model.cache.keys)[:, :, : len(tokens)].clone()
    cached.keep(0)
    cached.begin([*tokens, 0])
    assert torch.allclose(kept, torch.stack(model.cache.keys)[:, :, : len(tokens)], atol=1e-4)


@pytest.mark.usefixtures("often_joint")
def test_q_of_such_a_draft(session: Session) -> None:
    """Of a copied token all the mass; of the model's what it was drawn from."""
    text = session.tokenizer.backend.encode("abcabcab").ids
    executor = session.runner.executor
    assert isinstance(executor, HostExecutor)
    session.forget()
    for drafter in session.drafters.values():
        drafter.begin(text)
    executor.begin(ReplyRules(Sampling(seed=1, temperature=0.9, top_k=9)), text)
    executor.start("ratio")
    follow = Follow("lookup", "auto", lambda drafted, _: [7, 8] if len(drafted) == 2 else ())
    chain = session.drafters["draft"].propose(text, 9)
    assert isinstance(chain, Chain)
    executor.policies.off = True
    try:
        draft = executor.loops.make(chain._replace(follow=follow)).draft
    finally:
        executor.policies.off = False
    assert draft.tokens[2:] == [7, 8]
    assert len(draft.q) == 4
    assert [float(q[token]) for q, token in zip(draft.q[2:], (7, 8), strict=True)] == [1.0, 1.0]
    assert all(float(q.max()) < 1 for q in draft.q[:2])
