"""Quick measurements at load: what a step costs here."""

from statistics import median
from time import perf_counter

from specchat.engine.api import Sampling
from specchat.engine.decoding.step import Stepped
from specchat.engine.runners.base import Runner

PROMPT = 64
"""Tokens in the cache while measuring: a short chat."""
STEPS = 16
WARM_UP = 2
"""First steps that do not count."""
BUDGET_S = 1.0
"""A slow model is measured on fewer steps."""
DRAFTED = 4
"""Draft length at which a draft step is measured."""


def plain_speed(runner: Runner) -> float:
    """Tokens per second of plain greedy decoding, by the median step. Leaves the cache empty."""
    return 1e3 / median(ms for ms, _ in _steps(runner, "plain", 0))


def draft_cost(runner: Runner) -> float | None:
    """What drafting one token costs, in plain steps; None without a draft model. Leaves the cache empty."""
    if "draft" not in runner.drafters:
        return None
    drafting = [s.draft_ms / s.drafted for _, s in _steps(runner, "draft", DRAFTED) if s.drafted]
    plain = [s.verify_ms for _, s in _steps(runner, "plain", 0)]
    return median(drafting) / median(plain) if drafting else None


def _steps(runner: Runner, strategy: str, length: int) -> list[tuple[float, Stepped]]:
    """Milliseconds and outcome of up to STEPS steps after the warm-up."""
    prompt = [0] * max(1, min(PROMPT, runner.context - (STEPS + WARM_UP) * (length + 1) - 1))
    runner.cache.begin(prompt)
    drafter = runner.drafters[strategy]
    drafter.begin(prompt)
    reply = runner.reply(Sampling(), prompt, ())
    timed: list[tuple[float, Stepped]] = []
    begun = perf_counter()
    try:
        for i in range(STEPS + WARM_UP):
            if reply.room <= length:
                break
            start = perf_counter()
            stepped = reply.step(drafter, length, "coupled")
            if i >= WARM_UP:
                timed.append((1e3 * (perf_counter() - start), stepped))
            if timed and perf_counter() - begun > BUDGET_S:
                break
    finally:
        reply.close()
        runner.cache.keep(0)
    return timed
