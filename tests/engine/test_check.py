"""What `specchat check` finds by default: faults that are put in are told."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from scipy.stats import chi2
from torch import Tensor

from specchat.engine import check, check_ratio
from specchat.engine.check import CheckPrompt, CheckResult
from specchat.engine.check_ratio import chi_square, exact_distribution
from specchat.engine.decoding import acceptance
from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.protocol.options import Message, Speculation
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES

DRAFTING = set(STRATEGIES) - {"plain"}
PROMPTS = [CheckPrompt(name, (Message("user", "abcabcabc"),)) for name in "abc"]
"""One for each of the samplings."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "QUICK_TOKENS", 24)
    monkeypatch.setattr(check_ratio, "MOST_REPLIES", 250)
    monkeypatch.setattr(check_ratio, "FEWEST_REPLIES", 250)


@pytest.fixture
def few(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies enough for a fault of what all of them share."""
    strategies = tuple(session.info.strategy(name) for name in ("plain", "draft", "draft-tree", "lookup"))
    monkeypatch.setattr(session, "info", replace(session.info, strategies=strategies))


def results(session: Session) -> list[CheckResult]:
    return list(check.run(session, PROMPTS, full=False))


def test_the_default_has_two_turns_penalties_and_plain_itself(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "QUICK_TOKENS", 8)
    found = results(session)
    assert all(result.identical for result in found)
    compared = {(result.sampling, result.turn, result.strategy) for result in found}
    for sampling in ("greedy", "T=0.7 top-p 0.9", "penalties"):
        assert {s for name, turn, s in compared if (name, turn) == (sampling, 1)} == DRAFTING
        assert {s for name, turn, s in compared if (name, turn) == (sampling, 2)} == {"plain", *DRAFTING}


@pytest.mark.usefixtures("few")
def test_a_chat_that_holds_one_turn_is_checked_in_one(session: Session) -> None:
    long = [CheckPrompt("long", (Message("user", "abc" * 75),))]
    found = list(check.run(session, long, full=False))
    assert {result.turn for result in found} == {1}
    assert all(result.identical for result in found)


@pytest.mark.usefixtures("few")
def test_prefix_reuse_that_breaks_the_cache_is_found(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain shares the fault, so it must be compared with empty caches."""
    rewind = session.target.rewind

    def broken(prompt: Sequence[int]) -> int:
        reused = rewind(prompt)
        for values in session.target.model.cache.values:  # type: ignore[attr-defined]
            values[:, : max(0, reused - 1)] *= 1.5
        return reused

    monkeypatch.setattr(session.target, "rewind", broken)
    different = [result for result in results(session) if not result.identical]
    session.forget()
    assert "plain" in {result.strategy for result in different}
    assert 2 in {result.turn for result in different}
    assert all(result.margin is not None for result in different)


@pytest.mark.usefixtures("few")
def test_penalties_that_count_refused_drafts_are_found(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "pop", lambda *_: None)
    different = {result.sampling for result in results(session) if not result.identical}
    assert different == {"penalties"}


def drawn(session: Session) -> dict[tuple[str, str], bool]:
    return {(law.acceptance, law.strategy): law.holds for law in check_ratio.run(session, lambda *_: True)}


def test_no_strategy_draws_with_noise_that_one_before_drew_with(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn with it is remembered, and may be copied."""
    seeds: list[int] = []

    def drawn(_: Session, __: Speculation, seed: int) -> tuple[int, ...]:
        seeds.append(seed)
        return ()

    monkeypatch.setattr(check_ratio, "_drawn", drawn)
    list(check_ratio.run(session, lambda *_: True))
    assert len(seeds) == len(set(seeds)) == 2 * check_ratio.MOST_REPLIES * len(DRAFTING)


def test_ratio_and_block_follow_the_law_of_the_target(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_ratio, "MOST_REPLIES", 2)
    assert drawn(session) == dict.fromkeys(product(("ratio", "block"), DRAFTING), True)


def always(row: Tensor, draft: Draft, candidates: Sequence[int], *_: object) -> int:
    del row
    return draft.tokens[candidates[0] - 1]


def leftover_of_all(
    row: Tensor, draft: Draft, candidates: Sequence[int], position: int, sampler: Sampler, history: History
) -> int:
    """After a refusal drawn from all of the target's distribution, and not from what the draft left of it."""
    token = judged(row, draft, candidates, position, sampler, history)
    if token in [draft.tokens[node - 1] for node in candidates]:
        return token
    p = sampler.probabilities(sampler.scores(row, history))
    return acceptance.gumbel_argmax(p.log().numpy(), sampler.sampling.seed, position, 7)


judged = acceptance._ratio


@pytest.mark.parametrize("fault", [always, leftover_of_all])
def test_ratio_that_does_not_follow_it_is_found(fault: object, demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real pair, whose target may well choose what lookup copies."""
    monkeypatch.setattr(demo, "info", replace(demo.info, strategies=(demo.info.strategy("lookup"),)))
    monkeypatch.setattr(check_ratio, "TESTED", ("ratio",))
    monkeypatch.setattr(acceptance, "_ratio", fault)
    assert not drawn(demo)["ratio", "lookup"]


def test_blocks_that_do_not_follow_it_are_found(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of which all stays."""
    monkeypatch.setattr(demo, "info", replace(demo.info, strategies=(demo.info.strategy("draft"),)))
    monkeypatch.setattr(check_ratio, "TESTED", ("block",))
    monkeypatch.setattr(acceptance, "judge_block", lambda _, tokens, *__: (len(tokens), tokens[-1]))
    assert not drawn(demo)["block", "draft"]


def test_the_law_is_a_law(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(exact_distribution(session).values()) == pytest.approx(1.0)
    first = next(iter(exact_distribution(session)))[:1]
    # A token that ends the text has nothing after it.
    monkeypatch.setattr(session, "eos", frozenset(first))
    law = exact_distribution(session)
    assert sum(law.values()) == pytest.approx(1.0)
    assert {len(tokens) for tokens in law} == {1, 2}


def test_chance_stays_below_the_bound_and_the_impossible_above() -> None:
    law = {(i,): 1 / 16 for i in range(16)}
    statistic, bound = chi_square(Counter({(i,): 100 for i in range(16)}), law)
    assert statistic == 0.0
    assert bound == pytest.approx(chi2.isf(1e-6, 15), rel=0.02)
    assert chi_square(Counter({(99,): 1600}), law)[0] > chi_square(Counter({(99,): 1600}), law)[1]
    rare = {(0,): 0.999, (1,): 0.001}
    assert chi_square(Counter({(0,): 100}), rare)[0] < 1


def test_a_check_can_be_stopped(session: Session) -> None:
    assert list(check_ratio.run(session, lambda *told: told[-1] < 3)) == []


@pytest.mark.usefixtures("few")
def test_a_quick_check_takes_no_more_prompts_than_there_is_time_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "perf_counter", iter(range(0, 1000, 4)).__next__)
    monkeypatch.setattr(check, "QUICK_TOKENS", 3)
    monkeypatch.setattr(check_ratio, "QUICK_REPLIES", 5)
    prompts = [CheckPrompt(str(n), (Message("user", "abc"),)) for n in range(9)]
    found = list(check.run(session, prompts, full=False))
    assert {result.prompt for result in found} == {"0", "1", "2", "3", "4"}
    assert {result.sampling for result in found} == set(check.QUICK_SAMPLINGS)
    assert [(law.acceptance, law.strategy) for law in check_ratio.run(session, lambda *_: True, full=False)] == [
        ("ratio", "draft"),
        ("block", "draft"),
    ]
