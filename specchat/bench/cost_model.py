"""Speedup of a strategy from acceptance and costs: S = E / (n c + v(n + 1) + o) (Leviathan et al. 2023).

Costs are in plain steps of the target: c of a draft token, v(m) of verifying m rows, o of the rest of a step. The paper
has v = 1 and o = 0; on real machines neither holds.
"""

from collections.abc import Sequence


def even_survival(acceptance: float, length: int) -> list[float]:
    """s(1) .. s(length) with the same conditional acceptance at every position."""
    return [acceptance**place for place in range(1, length + 1)]


def expected_tokens(survival: Sequence[float]) -> float:
    """E: tokens per step; survival[j - 1] is the share of steps that accept the j-th draft token."""
    return 1.0 + sum(survival)


def step_cost(length: float, draft: float, check: float, other: float = 0.0) -> float:
    """Cost of a step that drafts `length` tokens at `draft` each, and verifies them and the pending one at `check`."""
    return length * draft + check + other


def mean_step_cost(drafted: Sequence[float], draft: float, checks: Sequence[float], other: float = 0.0) -> float:
    """Mean cost of steps with drafts of different lengths; drafted[j - 1] is the share that drafts a j-th token.

    Args:
        checks: v(1), v(2), ...: at least one more than `drafted`.
    """
    more = sum(share * (checks[j + 1] - checks[j]) for j, share in enumerate(drafted))
    return sum(drafted) * draft + checks[0] + more + other


def break_even(length: int, draft: float, check: float, other: float = 0.0) -> float:
    """Share of `length` draft tokens that must be accepted to match plain decoding; above 1 it is impossible."""
    return (step_cost(length, draft, check, other) - 1) / length


def speed_up(tokens: float, step: float) -> float:
    """S: speedup over plain decoding of steps with `tokens` at cost `step`."""
    return tokens / step
