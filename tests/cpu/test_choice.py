"""A token chosen by compiled code is the one that plain numpy chooses."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specchat.engine.cpu import compiled
from specchat.engine.decoding import sampler
from specchat.engine.decoding.noise import TOKEN, gumbel
from specchat.engine.protocol.options import Sampling

pytestmark = pytest.mark.cpu
choice = pytest.importorskip(compiled.CHOICE)


def rows(count: int, scale: float) -> NDArray[np.float32]:
    return (np.random.default_rng(count).standard_normal((60, count)) * scale).astype(np.float32)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 5.0, 40.0, 1000.0])
@pytest.mark.parametrize("count", [1, 2, 17, 3072, 50_000])
def test_the_token_is_that_of_numpy(count: int, scale: float) -> None:
    for i, scores in enumerate(rows(count, scale)):
        if i % 3 == 0:
            scores[np.random.default_rng(i).random(count) < 0.9] = -np.inf
        seed = (i * 0x9E3779B97F4A7C15) % 2**64
        for kind in (np.float32, np.float64):
            values = scores.astype(kind)
            assert choice.draw(values, seed, i, i % 9) == sampler._draw(values, seed, i, i % 9)


def test_a_token_far_below_wins_where_its_noise_is_the_largest() -> None:
    noise = gumbel(0, 5, TOKEN, np.arange(1_000_000))
    luckiest = int(noise.argmax())
    scores = np.zeros(1_000_000, np.float32)
    for margin, wins in ((0.01, True), (-0.01, False)):
        second = np.delete(noise, luckiest).max()
        scores[luckiest] = second - noise[luckiest] + margin
        assert (choice.draw(scores, 0, 5, TOKEN) == luckiest) is wins


@pytest.mark.parametrize("scores", [[np.nan, 1.0, np.nan], [np.nan, -np.inf], [-np.inf, np.inf, np.inf], []])
@pytest.mark.parametrize("times", [1, 16])
def test_scores_that_are_no_numbers_are_never_chosen(scores: list[float], times: int) -> None:
    values = np.array(scores * times, np.float32)
    with np.errstate(invalid="ignore"):
        assert choice.draw(values, 1, 2, 3) == sampler._draw(values, 1, 2, 3)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 3071])
def test_the_probability_is_that_of_softmax(count: int, scale: float) -> None:
    for scores in rows(count, scale):
        scores[1 : count // 2] = -np.inf
        shares = torch.from_numpy(scores).double().softmax(0)
        for token in (0, count - 1):
            assert choice.probability(scores, token) == pytest.approx(float(shares[token]), abs=1e-5)


def test_without_a_compiler_the_same_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> list[tuple[int, float]]:
        sampler._fast.cache_clear()
        one = sampler.Sampler(Sampling(temperature=0.8, seed=-3))
        scores = [torch.from_numpy(row) for row in rows(300, 2.0)]
        tokens = [one.pick(row, at) for at, row in enumerate(scores)]
        return [(token, one.probability(row, token)) for token, row in zip(tokens, scores, strict=True)]

    fast = chosen()
    monkeypatch.setattr(compiled, "unavailable", lambda _: "there is no compiler")
    slow = chosen()
    monkeypatch.undo()
    sampler._fast.cache_clear()
    assert [token for token, _ in fast] == [token for token, _ in slow]
    assert [share for _, share in fast] == pytest.approx([share for _, share in slow], abs=1e-5)


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=0.3, seed=2**64 - 5), Sampling(temperature=1.3, seed=8)]
)
def test_rows_in_one_go_are_rows_one_by_one(sampling: Sampling) -> None:
    chooser, wide = sampler.Sampler(sampling), torch.from_numpy(rows(3072, 4.0))
    wide[7, 100:] = -torch.inf
    for logits in (wide[:16], wide[:16, :3001]):  # the second are columns of longer rows
        places = [40 + row // 2 for row in range(len(logits))]
        found = chooser.choices(logits, places)
        assert found == [chooser.choose(row, at, sampler.History([])) for row, at in zip(logits, places, strict=True)]


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=1.0, top_k=3), Sampling(temperature=1.0, presence_penalty=1.0)]
)
def test_rows_that_are_cut_or_depend_on_what_came_before_are_not_chosen_in_one_go(sampling: Sampling) -> None:
    assert sampler.Sampler(sampling).choices(torch.zeros(2, 20), [5, 6]) is None


def test_a_row_of_no_numbers_is_found_where_it_is_looked_at() -> None:
    chooser = sampler.Sampler(Sampling(temperature=1.0))
    logits = torch.from_numpy(rows(40, 1.0))[:3]
    logits[2] = torch.nan
    assert chooser.choices(logits, [5, 6, 7]) is None
    assert chooser.choices(logits[:2], [5, 6]) is not None
