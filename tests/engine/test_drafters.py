"""What each family proposes, and what it does to caches."""

import torch

from specchat.engine.api import Limits, Sampling, Speculation
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
