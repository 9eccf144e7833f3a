"""Lookahead decoding: what its window reads, what its n-grams are, and how a step drafts them."""

from collections.abc import Sequence

import pytest

from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.step import Decoding
from specchat.engine.drafters import lookahead
from specchat.engine.drafters.lookahead import LookaheadDrafter, Pool, window_columns
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.session import Session
from specchat.engine.strategy import MAX_DRAFT_LENGTH

TEXT = list(range(100, 120))


def drafted(draft: Draft) -> list[tuple[int, ...]]:
    """The path of tokens to each node of a draft."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def outcome_of(draft: Draft, likeliest: dict[tuple[int, ...], int]) -> StepOutcome:
    """A step that keeps nothing, with what is likeliest after some of the paths, and 0 elsewhere."""
    after = tuple(likeliest.get(path, 0) for path in [(), *drafted(draft)])
    return StepOutcome((1,), tuple(draft.tokens), (), 0, (), 0.0, 0.0, likeliest=after)


def test_the_window_takes_half_of_the_rows() -> None:
    assert [window_columns(limit) for limit in (0, 1, 2, 7, 15)] == [0, 0, 1, 2, 4]
    for limit in range(MAX_DRAFT_LENGTH + 1):
        assert (lookahead.N - 1) * window_columns(limit) - 1 <= limit


def test_a_pool_keeps_the_newest_n_grams_of_a_token() -> None:
    pool = Pool([1, 2, 3, 1, 2, 4])
    assert pool.after(1) == [(2, 4), (2, 3)]
    assert pool.after(3) == [(1, 2)]
    assert pool.after(4) == []
    for token in range(lookahead.G - 1):
        pool.learn((1, 9, token))
        pool.learn((1, 2, 4))
    assert len(pool.after(1)) == lookahead.G
    assert pool.after(1)[0] == (2, 4)
    assert (2, 3) not in pool.after(1)


def test_each_column_is_read_after_the_columns_before_it() -> None:
    drafter = LookaheadDrafter()
    draft = drafter.propose(TEXT, 7)
    assert draft.strategy == "lookahead"
    # Two columns, the pending token's and another one, and no n-gram: tokens of the text stand for what was not read.
    assert drafted(draft) == [(118,), (118, 119)]


def test_what_is_likeliest_completes_n_grams_and_moves_the_window() -> None:
    drafter = LookaheadDrafter()
    draft = drafter.propose(TEXT, 7)
    # Level 0 is 119 (pending), 118; level 1 is 118, 119.
    drafter.observe([*TEXT, 50], outcome_of(draft, {(118,): 50, (118, 119): 51}))
    draft = drafter.propose([*TEXT, 118], 7)
    # Level 0 is 118 (pending), 119; level 1 is 50, 51. The n-gram 118 119 51 was made by the second column.
    assert drafted(draft) == [(119,), (119, 51), (50,)]
    drafter.observe([*TEXT, 118, 60], outcome_of(draft, {(50,): 60, (119, 51): 61}))
    draft = drafter.propose([*TEXT, 118, 118], 7)
    # Both n-grams of each column, those of the first one after the same token.
    assert drafted(draft) == [(51,), (51, 61), (60,), (50,), (50, 60), (119,), (119, 51)]
    drafter.observe([*TEXT, 118, 118, 62], outcome_of(draft, {(60,): 62}))
    draft = drafter.propose([*TEXT, 118, 118, 119], 3)
    # Of a shorter draft the first column alone.
    assert drafted(draft) == [(62,), (51,), (51, 61)]
    draft = drafter.propose([*TEXT, 118, 118, 119], 15)
    # The first column's n-gram begins with the token that was pending.
    assert (118, 50) in drafted(draft)


def test_a_step_of_another_drafter_is_not_learnt_from() -> None:
    drafter = LookaheadDrafter()
    for limit in (0, 1):
        drafter.propose(TEXT, 7)
        drafter.propose(TEXT, limit)
        drafter.observe(TEXT, StepOutcome((1,), (), (), 0, (), 0.0, 0.0))


def test_a_reply_begins_with_the_n_grams_of_its_prompt_alone() -> None:
    drafter = LookaheadDrafter()
    draft = drafter.propose([7, 8, 9, 7], 1)
    assert drafted(draft) == [(8,)]
    drafter.begin([7])
    draft = drafter.propose([7], 1)
    assert drafted(draft) == []


@pytest.mark.parametrize("acceptance", ["coupled", "ratio"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=3, temperature=1.2, repetition_penalty=1.2)])
def test_n_grams_are_what_the_target_writes(session: Session, acceptance: Acceptance, sampling: Sampling) -> None:
    """After every node, on whatever path: the largest logit, which is all that is told."""
    prompt = session.tokenizer.backend.encode("abcabcab").ids
    session.forget()
    session.target.begin(prompt)
    decoding = Decoding(session.runner.executor, session.target, ReplyRules(sampling), prompt)
    drafter = session.drafters["lookahead"]
    drafter.begin(prompt)
    for _ in range(6):
        text = list(decoding.committed)
        step = decoding.step(drafter, 15, acceptance)
        expected = [_likeliest(session, [*text, *path]) for path in _paths(step)]
        assert list(step.likeliest) == expected
        session.target.begin(decoding.committed)
    plain = decoding.step(session.drafters["plain"], 0, acceptance)
    assert plain.likeliest == ()


def _paths(step: StepOutcome) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(step.drafts, step.parents, strict=True):
        paths.append((*paths[parent], token))
    return paths


def _likeliest(session: Session, text: Sequence[int]) -> int:
    return int(session.target.next_logits(text).argmax())


def test_tokens_of_the_window_and_of_n_grams_stay(demo: Session) -> None:
    """Whole n-grams with the target's own token after them: N tokens in one step."""
    prompt = demo.tokenizer.backend.encode("Once upon a time there was a fox. The fox").ids
    demo.forget()
    demo.target.begin(prompt)
    decoding = Decoding(demo.runner.executor, demo.target, ReplyRules(Sampling()), prompt)
    drafter = demo.drafters["lookahead"]
    drafter.begin(prompt)
    steps = [decoding.step(drafter, 15, "coupled") for _ in range(40)]
    assert max(len(step.tokens) for step in steps) >= lookahead.N
    assert len(decoding.committed) - len(prompt) > 1.2 * len(steps)
