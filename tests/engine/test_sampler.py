"""Processors against transformers', and what they leave alone."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers.generation import logits_process as hf

from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.errors import ModelError
from specchat.engine.protocol.options import Sampling

VOCAB = 300


def logits(seed: int) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def close(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.equal(mine.isfinite(), theirs.isfinite()) and torch.allclose(
        mine[mine.isfinite()], theirs[theirs.isfinite()], atol=1e-5
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("sampling", "processor"),
    [
        (Sampling(temperature=0.6), hf.TemperatureLogitsWarper(0.6)),
        (Sampling(temperature=1.0, top_k=17), hf.TopKLogitsWarper(17)),
        (Sampling(temperature=1.0, top_p=0.8), hf.TopPLogitsWarper(0.8)),
        (Sampling(temperature=1.0, top_p=0.05), hf.TopPLogitsWarper(0.05)),
        (Sampling(temperature=1.0, min_p=0.03), hf.MinPLogitsWarper(0.03)),
    ],
)
def test_processors_equal_transformers(sampling: Sampling, processor: object, seed: int) -> None:
    mine = Sampler(sampling).scores(logits(seed), History([]))
    assert close(mine, processor(None, logits(seed)[None])[0])  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_processors(seed: int) -> None:
    prompt = [1, 2, 3, 250]
    sampling = Sampling(temperature=0.7, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.3)
    theirs = logits(seed)[None]
    for processor in (
        hf.RepetitionPenaltyLogitsProcessor(1.3),
        hf.TemperatureLogitsWarper(0.7),
        hf.TopKLogitsWarper(40),
        hf.TopPLogitsWarper(0.9),
        hf.MinPLogitsWarper(0.02),
    ):
        theirs = processor(torch.tensor([prompt]), theirs)
    assert close(Sampler(sampling).scores(logits(seed), History(prompt)), theirs[0])


def test_presence_and_frequency_count_the_reply_alone() -> None:
    history = History([1, 2])
    for token in (2, 5, 5):
        history.push(token)
    raw = logits(0)
    scores = Sampler(Sampling(presence_penalty=0.5, frequency_penalty=0.25)).scores(raw, history)
    changed = (raw - scores).numpy()
    assert np.allclose(changed[[2, 5]], [0.75, 1.0], atol=1e-5)
    assert np.count_nonzero(changed) == 2


def test_raw_logits_are_left_as_they_are() -> None:
    raw = logits(0)
    before = raw.clone()
    everything = Sampling(temperature=0.5, top_k=3, top_p=0.5, min_p=0.1, repetition_penalty=2.0, logit_bias={3: 1.0})
    Sampler(everything).choose(raw, 0, History([1]))
    assert torch.equal(raw, before)


def test_bias_can_force_and_forbid() -> None:
    raw = logits(0)
    best = int(raw.argmax())
    assert Sampler(Sampling(logit_bias={9: 1000.0})).choose(raw, 0, History([])) == 9
    assert Sampler(Sampling(logit_bias={best: -1000.0})).choose(raw, 0, History([])) != best
    assert Sampler(Sampling(logit_bias={VOCAB + 5: 1000.0})).choose(raw, 0, History([])) == best


def test_greedy_takes_the_lowest_of_equals() -> None:
    raw = torch.zeros(VOCAB)
    raw[[40, 7, 200]] = 1.0
    assert Sampler(Sampling()).choose(raw, 0, History([])) == 7


def test_samples_follow_the_processed_distribution() -> None:
    """Chi-square over 100,000 draws at distinct positions."""
    raw = logits(2)[:20]
    sampler = Sampler(Sampling(seed=11, temperature=1.3, top_p=0.97))
    scores = sampler.scores(raw, History([]))
    p = sampler.probabilities(scores).numpy()
    drawn = np.bincount([sampler.pick(scores, i) for i in range(100_000)], minlength=20)
    assert drawn[p == 0].sum() == 0
    assert chisquare(drawn[p > 0], p[p > 0] * 100_000).pvalue > 1e-3


def test_another_seed_or_position_draws_anew() -> None:
    scores = torch.zeros(VOCAB)
    draw = lambda seed, at: Sampler(Sampling(seed=seed, temperature=1.0)).pick(scores, at)  # noqa: E731
    assert draw(1, 5) == draw(1, 5)
    assert len({draw(1, at) for at in range(20)}) > 15
    assert len({draw(seed, 5) for seed in range(20)}) > 15


def test_scores_that_are_no_numbers_are_told() -> None:
    with pytest.raises(ModelError, match="scores that are no numbers"):
        Sampler(Sampling(temperature=1.0)).choose(torch.full((8,), float("nan")), 0, History([]))
