"""The search for what to skip: found sets are better, a stopped search goes on, and drafting uses what was found."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.engine.drafters.skip_search import WINDOW, Sublayer
from specchat.engine.drafters.swift import SwiftDrafter
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.engine.strategy import SkippedLayers
from specchat.tune import skips
from specchat.tune.skips import SkipEstimate, SkipTuning, layers_of, setting, skip_of, sublayers
from tests.engine.test_lossless import finished, reply

FIRST = SkippedLayers((1, 2, 3, 4), (1, 2, 3, 4))
"""All that may be skipped of six layers."""


@pytest.fixture
def tuning(session: Session, model: CachedDecoder, learnt: list[Path], tmp_path: Path) -> SkipTuning:
    return SkipTuning(session.target, model.config.recipe, tmp_path, learnt)


def run(tuning: SkipTuning, sets: int, stop_after: int = 1000) -> list[int]:
    stops = iter([False] * stop_after + [True])
    return [at.tried for at in tuning.run(sets, FIRST, lambda: next(stops))]


def test_a_found_set_is_better_than_the_first(tuning: SkipTuning) -> None:
    (first,) = tuning.estimates([sublayers(FIRST)])
    seen = run(tuning, 60)
    assert seen[0] == 1 + 8
    assert seen[-1] == 60
    assert tuning.found.times > first.times
    # The estimate is that of the set, and nothing at the ends of the target is in it.
    assert tuning.estimates([tuning.best]) == [tuning.found]
    assert {layer for _, layer in tuning.best} <= {1, 2, 3, 4}
    assert layers_of(skip_of(tuning.best)) == SkippedLayers(**{k: tuple(v) for k, v in setting_of(tuning).items()})


def setting_of(tuning: SkipTuning) -> dict[str, list[int]]:
    return setting(layers_of(skip_of(tuning.best)))


def test_estimates_are_of_what_the_target_guesses(tuning: SkipTuning) -> None:
    """Without a skipped sub-layer the target guesses its own greedy replies."""
    (nothing, everything) = tuning.estimates([frozenset(), sublayers(FIRST)])
    assert everything.accepted < nothing.accepted
    assert nothing.accepted > 0.9  # replies to learn from are sampled from the second round on
    # A free draft of eight tokens would be nine times as fast, and costs eight steps and their verification.
    assert nothing.times == pytest.approx(1.0, abs=0.1)


def test_a_stopped_search_goes_on_to_the_same_end(
    session: Session, model: CachedDecoder, learnt: list[Path], tmp_path: Path
) -> None:
    def begun(name: str) -> SkipTuning:
        (tmp_path / name).mkdir(exist_ok=True)
        return SkipTuning(session.target, model.config.recipe, tmp_path / name, learnt)

    whole = begun("whole")
    run(whole, 50)
    first = begun("parts")
    assert run(first, 50, stop_after=2)[-1] < 50
    second = begun("parts")
    assert run(second, 50)[0] > 9
    assert (second.best, second.found) == (whole.best, whole.found)
    # Of another beginning nothing is taken over, and a damaged file is none.
    other = begun("parts")
    assert next(other.run(50, SkippedLayers((1,), ()), lambda: False)).tried == 9
    (tmp_path / "parts" / skips.STATE).write_text('{"first"')
    assert run(begun("parts"), 50)[0] == 9


def test_the_search_while_writing_is_kept(tuning: SkipTuning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skips, "SCORED", 8)
    assert WINDOW == 32
    monkeypatch.setattr(skips, "share_right", lambda _, __, skip: len(skip.mlp) / 10)
    found = tuning.online(20)
    assert len(found.attention) + len(found.mlp) == 4  # 45 % of eight
    assert len(found.mlp) >= 2
    monkeypatch.setattr(skips, "share_right", None)
    assert tuning.online(20) == found


def test_a_pair_drafts_with_what_it_names(pair: PairSpec) -> None:
    named = load(replace(pair, skip=FIRST), lambda _: None)
    drafter = named.drafters["swift"]
    assert isinstance(drafter, SwiftDrafter)
    assert drafter.search.done
    assert layers_of(drafter.search.best) == FIRST
    drafter.forget()
    assert layers_of(drafter.search.best) == FIRST
    plain, drafted = (
        finished(reply(named, "abab", Sampling(temperature=0.8), Limits(40), Speculation.of(name)))
        for name in ("plain", "swift")
    )
    assert plain.token_ids == drafted.token_ids
    assert drafted.stats.num_draft_tokens > 0


def test_a_layer_that_the_target_does_not_have_is_a_reason(pair: PairSpec) -> None:
    status = load(replace(pair, skip=SkippedLayers((6,), ())), lambda _: None).info.strategy("swift")
    assert (status.available, status.reason) == (False, "skip names layer 6, and the target has layers 0 to 5")


def test_nothing_skipped_is_no_choice(tuning: SkipTuning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where it would be estimated as the fastest, because the target then guesses right."""
    tried: list[frozenset[Sublayer]] = []
    estimates = tuning.estimates

    def counted(some: Sequence[frozenset[Sublayer]]) -> list[SkipEstimate]:
        tried.extend(some)
        return [SkipEstimate(9.0 - len(one), 1.0, 1) for one in some]

    monkeypatch.setattr(tuning, "estimates", counted)
    run(tuning, 200)
    assert len(tuning.best) == 1
    assert all(tried)
    assert tuning.tried >= 200
    assert estimates([tuning.best])[0].times > 0
