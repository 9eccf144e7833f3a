"""Copies first, a draft model otherwise or after them: who drafts what, and that the text and its law do not change."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.drafters import cascade, ngram
from specchat.engine.drafters.cascade import TRUSTED, CascadeDrafter
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Acceptance, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply.reply import source
from specchat.engine.session import Session
from tests.engine.branches import Branches
from tests.engine.test_lossless import PROMPTS, SAMPLINGS, finished, reply


@pytest.fixture
def always_joint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every copy is taken, has one token, and is gone on after."""
    monkeypatch.setattr(cascade, "TRUSTED", 2)
    monkeypatch.setattr(cascade, "WHOLE", 0.0)
    monkeypatch.setattr(ngram, "SPREAD", 0)


def cascade_of(session: Session) -> CascadeDrafter:
    drafter = session.drafters["cascade"]
    assert isinstance(drafter, CascadeDrafter)
    return drafter


def made(executor: HostExecutor, session: Session, text: list[int], limit: int) -> tuple[str, Draft]:
    """Who drafts after a text, and what."""
    proposal = cascade_of(session).propose(text, limit)
    return proposal.strategy, executor.loops.make(proposal).draft


SAMPLING = Sampling(seed=1, temperature=0.9, top_k=9)


def drafted(
    session: Session,
    text: list[int],
    limit: int,
    acceptance: str = "coupled",
    ends: tuple[int, ...] = (),
    sampling: Sampling = SAMPLING,
) -> tuple[str, Draft]:
    """Who drafts after a text from empty caches, and what."""
    session.forget()
    for drafter in session.drafters.values():
        drafter.begin(text, ends)
    drafts = session.runner.executor
    assert isinstance(drafts, HostExecutor)
    drafts.begin(ReplyRules(sampling, ends), text)
    drafts.start("ratio" if acceptance == "ratio" else "coupled")
    return made(drafts, session, text, limit)


def test_only_long_matches_are_copied(session: Session) -> None:
    alike = list(range(40, 40 + TRUSTED))
    family, draft = drafted(session, [*alike, 7, 8, 9, 5, *alike], 3)
    assert (family, draft.tokens) == ("ngram", [7, 8, 9])
    family, draft = drafted(session, [*alike, 7, 8, 9, 5, *alike[1:]], 3)
    assert family == "draft"
    assert draft.confidence


@pytest.mark.usefixtures("always_joint")
def test_the_model_does_not_go_on_after_the_end_of_a_reply(session: Session) -> None:
    text = [40, 41, 7, 5, 40, 41]
    for ends, family in (((), "cascade"), ((7,), "ngram")):
        assert drafted(session, text, 3, ends=ends)[0] == family


def test_the_model_goes_on_once_copies_are_kept_whole(session: Session) -> None:
    alike = list(range(40, 40 + TRUSTED))
    text = [*alike, 7, 8, *alike]
    family, draft = drafted(session, text, 15)
    copied = len(draft.tokens)
    assert (family, copied) == ("ngram", 2 * TRUSTED)
    one = cascade_of(session)
    for _ in range(20):
        one.observe(text, StepOutcome((), tuple(draft.tokens), (), 0, tuple(range(copied)), 0.0, 0.0))
    drafts = session.runner.executor
    assert isinstance(drafts, HostExecutor)
    drafts.start("coupled")
    family, longer = made(drafts, session, text, 15)
    assert family == "cascade"
    assert longer.tokens[:copied] == draft.tokens
    assert len(longer.tokens) > copied
    assert len(longer.confidence) == len(longer.tokens) - copied
    for _ in range(20):
        one.observe(text, StepOutcome((), tuple(draft.tokens), (), 0, (), 0.0, 0.0))
    drafts.start("coupled")
    assert made(drafts, session, text, 15)[0] == "ngram"


@pytest.mark.rotated(2)
@pytest.mark.usefixtures("always_joint")
@pytest.mark.parametrize("name", ["greedy", "greedy penalties", "everything"])
@pytest.mark.parametrize("spread", [0, 1])
def test_joint_drafts_do_not_change_the_text(
    session: Session, name: str, spread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources tell who drafted each token; what was copied has no probability, what the model added has."""
    monkeypatch.setattr(ngram, "SPREAD", spread)
    # A reply of few letters repeats itself.
    few = dict.fromkeys(session.tokenizer.backend.encode("abc").ids, 9.0)
    sources = Counter[str]()
    joint = 0
    for seed, prompt in enumerate(PROMPTS):
        sampling = SAMPLINGS[name]
        sampling = replace(sampling, seed=seed, logit_bias=sampling.logit_bias | few)
        plain = finished(reply(session, prompt, sampling, Limits(60), Speculation()))
        for length in (4, 15):
            events = reply(session, prompt, sampling, Limits(60), Speculation("cascade", length))
            assert finished(events).token_ids == plain.token_ids
            steps = [event for event in events if isinstance(event, Step)]
            for step in steps:
                sources.update(piece.source for piece in step.pieces)
                copied = [draft.probability is None for draft in step.drafts]
                assert copied == sorted(copied, reverse=True)
                assert step.strategy == ("cascade" if len(set(copied)) == 2 else step.strategy)
                joint += step.strategy == "cascade"
    assert joint
    assert min(sources["ngram"], sources["draft"]) > 0 == sources["cascade"]


def test_each_token_of_a_joint_draft_has_its_own_source() -> None:
    outcome = StepOutcome((1, 2, 3, 4), (1, 2, 3, 9), (), 4, (1, 2, 3), 0.0, 0.0, sources=("ngram", "draft"), switch=2)
    assert [source(outcome, i) for i in range(4)] == ["ngram", "ngram", "draft", "target"]


@pytest.mark.usefixtures("always_joint")
@pytest.mark.parametrize("joint", [True, False])
def test_the_draft_model_s_cache_holds_what_it_went_over(
    session: Session, joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reply its entries are those of the text alone, but for what a draft model's rows owe to their company."""
    monkeypatch.setattr(cascade, "WHOLE", 0.0 if joint else 2.0)
    few = dict.fromkeys(session.tokenizer.backend.encode("abc").ids, 9.0)
    events = reply(session, "abc", Sampling(logit_bias=few), Limits(60), Speculation("cascade", 9))
    families = {event.strategy for event in events if isinstance(event, Step)}
    assert families >= ({"cascade"} if joint else {"ngram", "draft"})
    cached = session.runner.draft
    assert cached is not None
    model = cached.model
    assert isinstance(model, CpuDecoder)
    tokens = list(cached.tokens)
    assert len(tokens) > (20 if joint else 5)
    kept = torch.stack(model.cache.keys)[:, :, : len(tokens)].clone()
    cached.keep(0)
    cached.begin([*tokens, 0])
    assert torch.allclose(kept, torch.stack(model.cache.keys)[:, :, : len(tokens)], atol=1e-4)


@pytest.mark.usefixtures("always_joint")
def test_q_of_a_joint_draft(session: Session) -> None:
    """Of a copied token all the mass; of the model's what it was drawn from, the tokens before it counted."""
    text = session.tokenizer.backend.encode("abcabcab").ids
    family, draft = drafted(session, text, 6, "ratio")
    assert family == "cascade"
    copied = len(draft.tokens) - len(draft.confidence)
    assert 0 < copied < len(draft.tokens) == len(draft.q)
    for q, token in zip(draft.q[:copied], draft.tokens, strict=False):
        assert (float(q[token]), float(q.sum())) == (1.0, 1.0)
    sampler = Sampler(SAMPLING)
    for i in range(copied, len(draft.tokens)):
        assert sampler.pick(draft.q[i].log().float(), len(text) + i) == draft.tokens[i]


@pytest.mark.usefixtures("always_joint")
def test_penalties_count_what_was_copied(session: Session) -> None:
    """While a draft is made its copied tokens are part of the text, and are none of it afterwards."""
    text = session.tokenizer.backend.encode("abcabcab").ids
    drafts = session.runner.executor
    assert isinstance(drafts, HostExecutor)
    seen: list[int] = []
    pushed = History.push

    def push(history: History, token: int) -> None:
        seen.append(token)
        pushed(history, token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(History, "push", push)
        _, draft = drafted(session, text, 6, sampling=replace(SAMPLING, presence_penalty=0.1))
    assert seen == draft.tokens
    assert not drafts.loops.history.generated


@pytest.mark.usefixtures("always_joint")
@pytest.mark.parametrize("acceptance", ["ratio", "block"])
def test_the_law_of_joint_drafts(session: Session, acceptance: Acceptance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three tokens of a reply, by enumeration of every choice, against the target's own law."""
    a, b = session.tokenizer.backend.encode("ab").ids
    sampling = Sampling(temperature=0.9, top_k=2, logit_bias={a: 12.0, b: 11.5})
    chat = (Message("user", "x"), Message("assistant", "abab"), Message("user", "x"))
    prompt = session.tokenizer.prompt(chat)
    sampler, history = Sampler(sampling), History(prompt)
    exact: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer = {}
        for tokens, reached in exact.items():
            p = sampler.probabilities(sampler.scores(session.target.next_logits([*prompt, *tokens]), history))
            longer |= {(*tokens, i): reached * float(p[i]) for i in p.nonzero()[:, 0].tolist()}
        exact = longer
    request = Generate(1, chat, sampling, Limits(4), Speculation("cascade", 3, acceptance), cold=True)
    branches = Branches(monkeypatch)
    found: Counter[tuple[int, ...]] = Counter()
    joint = 0
    for events, probability in branches.outcomes(lambda: list(session.generate(request))):
        found[finished(events).token_ids[:3]] += probability
        joint += sum(isinstance(event, Step) and event.strategy == "cascade" for event in events)
    assert joint
    assert set(found) == set(exact)
    for tokens, probability in exact.items():
        assert found[tokens] == pytest.approx(probability, abs=1e-6)
