"""The cost of a step that checks M tokens, measured on the step itself: a drafter hands it M - 1 tokens at once."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from specchat.bench.summary import Spread
from specchat.engine.measure import Repeating
from specchat.engine.options import Sampling
from specchat.engine.runners.runner import Runner
from specchat.engine.strategy import MAX_DRAFT_LENGTH

WARM_UP = 2
STEPS = 24
BUDGET_S = 60.0
"""A slow model is measured on fewer steps, but LEAST."""
LEAST = 3
PROMPT = 64
"""Tokens in the cache at the start: a short chat."""


@dataclass(frozen=True)
class VerifyCost:
    """Milliseconds of a verify pass of `rows` tokens, and the ratio of its median to that of one row."""

    rows: int
    ms: Spread
    ratio: float


def verify_cost(runner: Runner, told: Callable[[float], None], wanted: Callable[[], bool]) -> list[VerifyCost]:
    """v(M) for M = 1..16 after a prompt of PROMPT tokens; the sizes take turns. Leaves the cache empty.

    Ends early when it is no longer `wanted`.
    """
    sizes = [m for m in range(1, MAX_DRAFT_LENGTH + 2) if PROMPT + m < runner.context]
    times: dict[int, list[float]] = {m: [] for m in sizes}
    prompt = [0] * PROMPT
    drafter = Repeating()
    begun = perf_counter()
    for turn in range(WARM_UP + STEPS):
        if not wanted() or (turn >= WARM_UP + LEAST and perf_counter() - begun > BUDGET_S):
            break
        told(turn / (WARM_UP + STEPS))
        runner.target.begin(prompt)
        # Every turn starts at the same length: one step of each size, then back.
        for m in sizes:
            reply = runner.reply(Sampling(), list(prompt), ())
            try:
                stepped = reply.step(drafter, m - 1, "coupled")
            finally:
                reply.close()
                runner.target.keep(PROMPT - 1)
            if turn >= WARM_UP:
                times[m].append(stepped.verify_ms)
    runner.target.keep(0)
    spreads = {m: Spread.of(of_size) for m, of_size in times.items()}
    one = spreads[1]
    if one is None:
        return []
    return [VerifyCost(m, s, s.median / one.median) for m, s in spreads.items() if s is not None]
