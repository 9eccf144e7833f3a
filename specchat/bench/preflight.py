"""Checks before drafting: what decides whether it pays, each with the figure of this machine and a rule.

The rules are those of the cost model (`cost_model.py`); the order is that in which they usually fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.bench.cost_model import break_even, expected_tokens, speed_up, step_cost
from specchat.engine.memory.plan import GIB

FLAT, STEEP = 0.03, 0.1
"""Cost of a further verified token, in plain steps: up to the first long drafts pay, from the second short ones."""
CHEAP = 0.25
"""Cost of a draft token, in plain steps, above which drafting rarely pays."""
BUSY = 0.1
"""Share of the time that replies waited for a processor, from which figures are those of a busy machine."""


@dataclass(frozen=True)
class BestStrategy:
    """The fastest strategy of a pair, as measured.

    Attributes:
        length: draft length.
        draft: cost of a draft token in plain steps.
        accepted: share of the draft tokens that were accepted; `mean_draft` their number per step.
        measured: speed over plain decoding.
    """

    strategy: str
    length: int
    draft: float
    accepted: float
    mean_draft: float
    measured: float


@dataclass(frozen=True)
class Preflight:
    """The known facts of a pair on this machine.

    Attributes:
        plain_ms: milliseconds of a plain step; `bound_ms` the time to read its weights alone, 0 where unknown.
        checks: time of steps that verify 1, 2, ... tokens, in plain steps, so that the first is 1.
        waited: share of the time that replies waited for a processor.
        memory, free: bytes of the pair, and free bytes beside it; None where unknown.
        prompts: compared texts.
    """

    plain_ms: float
    bound_ms: float
    checks: Sequence[float]
    best: BestStrategy
    waited: float
    memory: int
    free: int | None
    prompts: int
    exactness: str


def preflight_lines(p: Preflight) -> list[str]:
    """The checks as sentences: the question, the figure, and what follows."""
    lines = [
        f"1. Same text? Every text of {p.prompts} prompts was plain decoding's ({p.exactness}).",
        f"2. Room? The pair takes {p.memory / GIB:.2f} GiB"
        + (f", and {p.free / GIB:.1f} are free beside it." if p.free is not None else "."),
        f"3. Quiet? Replies waited {p.waited:.0%} of their time for a processor"
        + (": measure again when less runs." if p.waited > BUSY else "."),
        f"4. Bound by memory? A plain step takes {p.plain_ms:.2f} ms" + _bound(p),
        f"5. Is verifying cheap? {_verifying(p.checks)}",
    ]
    if not p.best.length:
        return [*lines, f"Then: {p.best.strategy}, {p.best.measured:.2f} times plain, as measured."]
    check = p.checks[min(p.best.length + 1, len(p.checks)) - 1]
    needed = break_even(p.best.length, p.best.draft, check)
    drafting = "which is cheap" if p.best.draft <= CHEAP else "which is dear: copies may be better"
    verdict = "so drafting pays" if p.best.accepted > needed else "so it does not pay"
    share = "no share would do" if needed > 1 else f"a draft of {p.best.length} needs {max(0.0, needed):.0%}"
    lines += [
        f"6. Is drafting cheap? A token by {p.best.strategy} costs {p.best.draft:.2f} of a plain step, {drafting}.",
        f"7. Is enough accepted? {p.best.accepted:.0%} of its draft tokens are; {share}, {verdict}.",
        f"Then: the cost model gives {_expected(p):.2f} times plain, and {p.best.measured:.2f} was measured.",
    ]
    return lines


def _bound(p: Preflight) -> str:
    if not p.bound_ms:
        return "."
    share = min(1.0, p.bound_ms / p.plain_ms)
    after = "verifying several tokens at once saves that" if share > 0.5 else "most of it is other work"
    return f", and reading its weights {p.bound_ms:.2f}, {share:.0%}: {after}."


def _verifying(checks: Sequence[float]) -> str:
    if len(checks) < 2:
        return "It was not measured."
    rise = (checks[-1] - checks[0]) / (len(checks) - 1)
    words = "long drafts pay" if rise <= FLAT else "drafts should be short" if rise >= STEEP else "drafts of 3 to 8 pay"
    shown = ", ".join(f"{m} {checks[m - 1]:.2f}" for m in (2, 4, 8, 16) if m <= len(checks))
    return f"Tokens at once, in plain steps: {shown}; {rise:.2f} for each further one: {words}."


def _expected(p: Preflight) -> float:
    """The cost model's speed at the measured acceptance and the mean draft."""
    length = max(1, round(p.best.mean_draft))
    check = p.checks[min(length + 1, len(p.checks)) - 1]
    tokens = expected_tokens([p.best.accepted * p.best.mean_draft])  # accepted tokens of a step, and the target's own
    return speed_up(tokens, step_cost(p.best.mean_draft, p.best.draft, check))
