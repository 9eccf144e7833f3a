"""Measures the cost of a step that verifies M tokens, with a drafter that proposes M - 1 tokens at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from specchat.bench.summary import Spread
from specchat.engine.protocol.options import Sampling
from specchat.engine.reply.measure import Unlike
from specchat.engine.runners.runner import Runner
from specchat.engine.strategy import MAX_DRAFT_LENGTH

WARM_UP_STEPS = 2
STEPS = 24
BUDGET_S = 60.0
"""Seconds after which a slow model has fewer steps, but MIN_STEPS."""
MIN_STEPS = 3
PROMPT_TOKENS = 64
"""Tokens in the cache at the start: a short chat."""


@dataclass(frozen=True)
class VerifyCost:
    """Milliseconds to verify `rows` tokens, and the ratio of the median to that of one row."""

    rows: int
    ms: Spread
    ratio: float


def verify_cost(runner: Runner, notify: Callable[[float], None], wanted: Callable[[], bool]) -> list[VerifyCost]:
    """v(M) for M = 1..16 after a prompt of PROMPT_TOKENS tokens; the sizes take turns. Leaves the cache empty.

    Ends early once it is no longer `wanted`.
    """
    sizes = [m for m in range(1, MAX_DRAFT_LENGTH + 2) if PROMPT_TOKENS + m < runner.context]
    times: dict[int, list[float]] = {m: [] for m in sizes}
    prompt = [0] * PROMPT_TOKENS
    begun = perf_counter()
    for turn in range(WARM_UP_STEPS + STEPS):
        if not wanted() or (turn >= WARM_UP_STEPS + MIN_STEPS and perf_counter() - begun > BUDGET_S):
            break
        notify(turn / (WARM_UP_STEPS + STEPS))
        runner.target.begin(prompt)
        # Every turn starts at the same length: one step of each size, then a rollback.
        for m in sizes:
            ms = check_ms(runner, prompt, m)
            if turn >= WARM_UP_STEPS:
                times[m].append(ms)
    runner.target.keep(0)
    spreads = {m: Spread.of(of_size) for m, of_size in times.items()}
    one = spreads[1]
    if one is None:
        return []
    return [VerifyCost(m, s, s.median / one.median) for m, s in spreads.items() if s is not None]


def check_ms(runner: Runner, prompt: Sequence[int], rows: int) -> float:
    """Milliseconds to verify `rows` tokens after a prompt that has begun, which the cache then ends with again."""
    reply = runner.reply(Sampling(), list(prompt), ())
    try:
        return reply.step(Unlike(), rows - 1, "coupled").verify_ms
    finally:
        reply.close()
        runner.target.keep(len(prompt) - 1)
