"""What each family proposes, and what it does to caches."""

from collections import Counter
from random import Random

import pytest
import torch

from specchat.engine.bandit.averages import Average
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.means import Mean
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.lookup import LookupDrafter
from specchat.engine.drafters.ngram import NgramDrafter
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.drafters.skip_search import SkipSearch
from specchat.engine.drafters.suffix import SuffixDrafter
from specchat.engine.drafters.swift import SwiftDrafter
from specchat.engine.model.passes import Skip
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from tests.engine.branches import Branches
from tests.engine.test_lossless import finished, reply


def lookup() -> LookupDrafter:
    return LookupDrafter(Occurrences())


def looked_up(text: list[int], limit: int) -> list[int]:
    drafter = lookup()
    drafter.begin(text)
    return drafter.propose(text, limit).tokens


def test_lookup_prefers_the_longest_match_then_the_latest() -> None:
    assert looked_up([1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3], 2) == [9, 5]
    assert looked_up([2, 3, 9, 0, 2, 3, 8, 0, 2, 3], 1) == [8]


@pytest.mark.parametrize("family", ["lookup", "suffix", "ngram"])
def test_nothing_is_copied_after_what_ends_a_reply(family: str) -> None:
    """The end of a text that is copied is followed by the next message, which no step can keep."""
    earlier = Earlier()
    families = {
        "lookup": LookupDrafter(Occurrences()),
        "suffix": SuffixDrafter(Occurrences(), earlier),
        "ngram": NgramDrafter(earlier),
    }
    text = [1, 2, 3, 4, 9, 5, 6, 7, 1, 2, 3]
    for ends, copied in (((), [4, 9, 5, 6]), ((9,), [4, 9])):
        families[family].begin(text, ends)
        assert families[family].propose(text, 4).tokens == copied


def test_no_branch_goes_on_after_what_ends_a_reply() -> None:
    suffix, text = SuffixDrafter(Occurrences(), Earlier()), [1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 9, 6, 1, 2]
    for ends, copied in (((), {3, 5, 9, 6}), ((9,), {3, 5, 9})):
        suffix.begin(text, ends)
        assert set(suffix.propose(text, 9).tokens) - {1, 2} == copied


def test_lookup_needs_two_tokens_and_never_matches_itself() -> None:
    assert looked_up([7, 1, 7], 4) == []
    assert looked_up([1, 2, 3, 4], 4) == []
    assert looked_up([5], 4) == []


def test_lookup_continues_a_repetition_past_the_end() -> None:
    assert looked_up([1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]
    assert looked_up([7, 7, 7], 3) == [7, 7, 7]


def test_lookup_follows_the_text_as_it_grows() -> None:
    text = [1, 2, 3, 4]
    drafter = lookup()
    drafter.begin(text)
    for token in (9, 1, 2):
        drafter.propose(text, 3)
        text.append(token)
    assert drafter.propose(text, 3).tokens == [3, 4, 9]
    drafter.begin([8])
    assert drafter.propose([8, 1, 2], 3).tokens == []


def indexed(text: list[int]) -> Occurrences:
    here = Occurrences()
    here.begin(text)
    return here


def test_the_index_goes_on_with_a_chat_and_not_with_another() -> None:
    here, taken = Occurrences(), list[int]()
    extend = here.extend
    here.extend = lambda tokens: (taken.extend(tokens), extend(tokens))[1]  # type: ignore[method-assign]
    longer = [1, 2, 3, 1, 2, 4, 1, 2]
    for text in ([1, 2, 3, 1, 2], longer):
        here.begin(text)
        assert list(here.matches([1, 2], 9, 9)) == list(indexed(text).matches([1, 2], 9, 9))
    assert taken == longer, "what is known is not entered again"
    for text in ([1, 2, 9], [1, 2]):
        here.begin(text)
        assert here.token_ids == text
        assert list(here.matches([1, 2], 9, 9)) == list(indexed(text).matches([1, 2], 9, 9))


def test_matches_are_those_of_comparing_token_by_token() -> None:
    """Also beyond what is compared many tokens at once."""
    chance = Random(5)
    for _ in range(60):
        piece = [chance.randrange(3) for _ in range(50)]
        text = [*piece[: chance.randrange(50)], 7, *piece[chance.randrange(50) :], 8, *piece[: chance.randrange(2, 50)]]
        found = {at: length for length, at in indexed(text).matches(text, 40, 999)}
        for at in range(1, len(text)):
            alike = 0
            while alike < min(40, at) and text[at - 1 - alike] == text[-1 - alike]:
                alike += 1
            assert found.get(at, 0) == (alike if alike >= 2 else 0)


def test_skip_search_keeps_first_and_last_layer_and_finds_a_good_set() -> None:
    """Sub-layers of even layers matter here, odd ones do not; the search starts from odd ones hidden from it."""
    search = SkipSearch(14, seed=3)
    matter = {("attention", i) for i in range(0, 14, 3)} | {("mlp", i) for i in range(0, 14, 2)}

    def score(skip: Skip) -> float:
        left_out = {("attention", i) for i in skip.attention} | {("mlp", i) for i in skip.mlp}
        assert not {i for _, i in left_out} & {0, 13}
        assert len(left_out) == 11
        return 1 - len(left_out & matter) / 12

    start = score(search.best)
    while not search.done:
        search.try_set(score)
    assert score(search.best) > max(start, 0.9)
    assert search.trials <= 1000


def test_swift_search_leaves_the_cache_as_it_was(session: Session) -> None:
    swift = session.drafters["swift"]
    assert isinstance(swift, SwiftDrafter)
    swift.forget()  # the session is shared: another test may have ended the search
    last = finished(reply(session, "abcabc", Sampling(), Limits(100), Speculation.of("swift")))
    assert swift.search.trials > 0
    target = session.target.model
    assert isinstance(target, CpuDecoder)
    tokens = list(session.target.tokens)
    kept = torch.stack(target.cache.keys)[:, :, : len(tokens)].clone()
    session.target.keep(0)
    session.target.begin([*tokens, 0])
    assert torch.equal(kept, torch.stack(target.cache.keys)[:, :, : len(tokens)])
    assert last.token_ids


@pytest.mark.parametrize("strategy", ["draft", "swift", "early-exit"])
def test_q_is_what_the_draft_was_drawn_from(session: Session, strategy: str) -> None:
    """Token by token the keyed draw from q: ratio acceptance is exact only for the distribution really drawn from."""
    drafter = session.drafters[strategy]
    prompt = session.tokenizer.prompt([Message("user", "abc")])
    session.forget()
    session.target.begin(prompt)
    drafter.begin(prompt)
    drafts = session.runner.executor
    assert isinstance(drafts, HostExecutor)
    drawn = set()
    for seed in range(40):
        sampling = Sampling(seed=seed, temperature=0.8, top_k=6)
        sampler = Sampler(sampling)
        drafts.begin(ReplyRules(sampling), prompt)
        drafts.start("ratio")
        draft = drafts.loops.make(drafter.propose(prompt, 3)).draft
        drafter.observe(prompt, StepOutcome((), tuple(draft.tokens), (), 0, (), 0.0, 0.0))
        for i, (q, token) in enumerate(zip(draft.q, draft.tokens, strict=True)):
            assert int((q > 0).sum()) == 6
            assert sampler.pick(q.log().float(), len(prompt) + i) == token
        drawn.add(draft.tokens[0])
    assert len(drawn) > 1


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "plain"])
def test_ratio_replies_are_distributed_as_the_target_says(
    session: Session, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law of a reply's first two tokens, by enumeration of every choice, against the target's own."""
    # The turn before begins like the reply, so that lookup has something to draft; the bias makes it likely.
    a, b = session.tokenizer.backend.encode("ab").ids
    sampling = Sampling(temperature=0.9, top_k=2, logit_bias={a: 12.0, b: 11.0})
    chat = (Message("user", "x"), Message("assistant", "ab"), Message("user", "x"))
    prompt = session.tokenizer.prompt(chat)
    sampler, history = Sampler(sampling), History(prompt)
    session.target.begin(prompt)
    exact: dict[tuple[int, ...], float] = {}
    first = sampler.probabilities(sampler.scores(session.target.next_logits(prompt), history))
    for one in first.nonzero()[:, 0].tolist():
        second = sampler.probabilities(sampler.scores(session.target.next_logits([*prompt, one]), history))
        for two in second.nonzero()[:, 0].tolist():
            exact[one, two] = float(first[one] * second[two])
    # From empty caches, and with the search of SWIFT at its start: the same choices, the same reply. What a step takes
    # is up to the machine, and what drafts bring to replies before, so `auto` must not learn it here.
    for learns in (StepCosts, Average, Mean):
        monkeypatch.setattr(learns, "add", lambda *_, **__: None)
    monkeypatch.setattr(StepCosts, "verify_ms", lambda _: [1.0] * (MAX_DRAFT_LENGTH + 2))
    monkeypatch.setattr(StepCosts, "draft_token_ms", lambda *_: 0.01)
    monkeypatch.setattr(AutoDrafter, "_explore", lambda *_: False)
    # What was thought over in replies before holds for a while in the next: here all is, at each step.
    for steps, number in (("REVIEW", 0), ("STALE", 0), ("REFRESHED", 1)):
        monkeypatch.setattr(f"specchat.engine.bandit.drafter.{steps}", number)
    request = Generate(1, chat, sampling, Limits(3), Speculation(strategy, 2, "ratio"), cold=True)
    branches = Branches(monkeypatch)
    reached: Counter[tuple[int, ...]] = Counter()
    accepted = tested = 0
    for last, probability in branches.outcomes(lambda: finished(list(session.generate(request)))):
        reached[last.token_ids[:2]] += probability
        accepted += last.stats.num_accepted_draft_tokens
        tested += last.stats.num_tested_draft_tokens
    assert 0 < accepted < tested, "nothing was kept, or nothing was refused"
    assert set(reached) == set(exact)
    for pair, probability in exact.items():
        assert abs(reached[pair] - probability) < 1e-6


def test_a_draft_model_says_how_long_it_must_read(session: Session) -> None:
    model = session.drafters["draft"]
    assert isinstance(model, DraftModelDrafter)
    text = list(range(30, 90))
    session.forget()
    session.runner.executor.begin(ReplyRules(Sampling()), text)
    model.begin(text)
    model.propose(text, 1)
    assert model.reading_ms(text) == 0.0
    assert (
        0 < 3 * model.reading_ms([*text, *range(20)]) == pytest.approx(model.reading_ms([*text, *range(60)]), rel=0.1)
    )
    session.forget()
    assert model.reading_ms(text) > model.reading_ms(text[:20]) > 0
