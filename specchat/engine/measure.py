"""Quick measurements at load: what a step costs here."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

from specchat.engine.api import Sampling
from specchat.engine.decoding.sampler import Sampler
from specchat.engine.decoding.step import Decoding
from specchat.engine.drafters.plain import PlainDrafter
from specchat.engine.model.decoder import Decoder
from specchat.engine.targets.native import NativeTarget

PROMPT = 64
"""Tokens in the cache while measuring: a short chat."""
STEPS = 16
BUDGET_S = 1.0
"""A slow model is measured on fewer steps."""


def plain_speed(target: NativeTarget) -> float:
    """Tokens per second of plain greedy decoding, by the median step. Leaves the cache empty."""
    prompt = [0] * max(1, min(PROMPT, target.context - STEPS - 1))
    target.begin(prompt)
    decoding = Decoding(target, Sampler(Sampling()), prompt, ())
    drafter = PlainDrafter()
    times = _timed(lambda: decoding.step(drafter, 0, "coupled"))
    target.keep(0)
    return 1e3 / median(times)


def median_step_ms(decoder: Decoder) -> float:
    """Milliseconds of one single-token forward with logits. Leaves the cache as long as it was."""
    length = decoder.cache.length

    def step() -> None:
        decoder.logits(decoder.forward([0]))
        decoder.cache.truncate(length)

    return median(_timed(step))


def _timed(step: Callable[[], object]) -> list[float]:
    """Milliseconds of up to STEPS runs, the first two (warming up) left out."""
    times: list[float] = []
    begun = perf_counter()
    for i in range(STEPS):
        start = perf_counter()
        step()
        if i >= 2:
            times.append(1e3 * (perf_counter() - start))
        if times and perf_counter() - begun > BUDGET_S:
            break
    return times
