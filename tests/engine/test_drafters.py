"""What each family proposes, and what it does to caches."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from scipy.stats import chisquare

from specchat.engine.api import Generate, Limits, Message, Sampling, Speculation
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.drafters.lookup import LookupDrafter
from specchat.engine.drafters.skip_search import SkipSearch
from specchat.engine.drafters.swift import SwiftDrafter
from specchat.engine.model.decoder import Skip
from specchat.engine.session import Session
from tests.engine.test_lossless import finished, reply

GREEDY = Sampler(Sampling())


def looked_up(text: list[int], limit: int) -> list[int]:
    drafter = LookupDrafter()
    drafter.begin(text)
    return drafter.propose(text, limit, GREEDY, History(text), False).tokens


def test_lookup_prefers_the_longest_match_then_the_latest() -> None:
    assert looked_up([1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3], 2) == [9, 5]
    assert looked_up([2, 3, 9, 0, 2, 3, 8, 0, 2, 3], 1) == [8]


def test_lookup_needs_two_tokens_and_never_matches_itself() -> None:
    assert looked_up([7, 1, 7], 4) == []
    assert looked_up([1, 2, 3, 4], 4) == []
    assert looked_up([5], 4) == []


def test_lookup_continues_a_repetition_past_the_end() -> None:
    assert looked_up([1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]
    assert looked_up([7, 7, 7], 3) == [7, 7, 7]


def test_lookup_follows_the_text_as_it_grows() -> None:
    text = [1, 2, 3, 4]
    drafter = LookupDrafter()
    drafter.begin(text)
    for token in (9, 1, 2):
        drafter.propose(text, 3, GREEDY, History([]), False)
        text.append(token)
    assert drafter.propose(text, 3, GREEDY, History([]), False).tokens == [3, 4, 9]
    drafter.begin([8])
    assert drafter.propose([8, 1, 2], 3, GREEDY, History([]), False).tokens == []


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
        search.offer(score)
    assert score(search.best) > max(start, 0.9)
    assert search.trials <= 1000


def test_swift_search_leaves_the_cache_as_it_was(session: Session) -> None:
    swift = session.drafters["swift"]
    assert isinstance(swift, SwiftDrafter)
    before = swift.search.trials
    last = finished(reply(session, "abcabc", Sampling(), Limits(100), Speculation.of("swift")))
    assert swift.search.trials > before
    cache = session.target.decoder.cache
    kept = [k[:, : cache.length].clone() for k in cache.keys]
    tokens = list(session.target.tokens)
    session.target.keep(0)
    session.target.begin([*tokens, 0])
    assert all(torch.equal(a, k[:, : cache.length]) for a, k in zip(kept, cache.keys, strict=True))
    assert last.token_ids


@pytest.mark.parametrize("strategy", ["draft", "swift"])
def test_q_is_what_the_draft_was_drawn_from(session: Session, strategy: str) -> None:
    """Chi-square over 3,000 seeds; ratio acceptance is exact only for the distribution really drawn from."""
    drafter = session.drafters[strategy]
    prompt = session.tokenizer.prompt([Message("user", "abc")])
    session.target.begin(prompt)
    drafter.begin(prompt)
    drawn: Counter[int] = Counter()
    q = torch.empty(0)
    for seed in range(3000):
        sampler = Sampler(Sampling(seed=seed, temperature=0.8, top_k=6))
        draft = drafter.propose(prompt, 1, sampler, History(prompt), True)
        drafter.observe(prompt)
        assert draft.q is not None
        q = draft.q[0]
        drawn[draft.tokens[0]] += 1
    support = q.nonzero()[:, 0].tolist()
    assert set(drawn) <= set(support)
    assert chisquare([drawn[t] for t in support], (q[support] * 3000).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("strategy", ["draft", "lookup", "swift"])
def test_ratio_replies_are_distributed_as_the_target_says(session: Session, strategy: str) -> None:
    """Chi-square of the first two tokens over 1,500 seeds against their exact probabilities under the target."""
    # The turn before begins like the reply, so that lookup has something to draft; the bias makes it likely.
    a, b = session.tokenizer.backend.encode("ab").ids
    sampling = Sampling(temperature=0.9, top_k=4, logit_bias={a: 12.0, b: 11.0})
    chat = (Message("user", "x"), Message("assistant", "ab"), Message("user", "x"))
    prompt = session.tokenizer.prompt(chat)
    sampler, history = Sampler(sampling), History(prompt)
    session.target.begin(prompt)
    known = len(session.target.tokens)
    exact: dict[tuple[int, ...], float] = {}
    first = sampler.probabilities(sampler.scores(session.target.extend(prompt[-1:])[0], history))
    for one in first.nonzero()[:, 0].tolist():
        session.target.keep(known + 1)
        second = sampler.probabilities(sampler.scores(session.target.extend([one])[0], history))
        for two in second.nonzero()[:, 0].tolist():
            exact[one, two] = float(first[one] * second[two])
    session.target.keep(0)
    seen: Counter[tuple[int, ...]] = Counter()
    runs, accepted = 1500, 0
    for seed in range(runs):
        speculation = Speculation(strategy, 2, "ratio")
        request = Generate(1, chat, replace(sampling, seed=seed), Limits(3), speculation)
        last = finished(list(session.generate(request)))
        seen[last.token_ids[:2]] += 1
        accepted += last.stats.num_accepted_draft_tokens
    assert accepted > 0
    assert set(seen) <= set(exact)
    # Rare pairs go together: chi-square needs five expected counts a cell.
    common = [pair for pair, p in exact.items() if p * runs >= 5]
    observed = [seen[pair] for pair in common]
    expected = [exact[pair] * runs for pair in common]
    if rest := runs - sum(expected):
        observed.append(runs - sum(observed))
        expected.append(rest)
    assert chisquare(observed, expected).pvalue > 1e-3
