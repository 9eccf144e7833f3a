"""What a way of drafting brings, from acceptance and costs: S = E / (n c + v(n + 1) + o) (Leviathan et al. 2023).

Costs are in plain steps of the target: c is what drafting a token takes, v(m) a check of m rows, o the rest of a step.
In the paper v is 1 and o is 0; on real machines neither is.
"""

from collections.abc import Sequence


def even_survival(acceptance: float, length: int) -> list[float]:
    """s(1) .. s(length) where each drafted token stays with the same probability if those before it do."""
    return [acceptance**place for place in range(1, length + 1)]


def expected_tokens(survival: Sequence[float]) -> float:
    """E: tokens of a step of which survival[j - 1] is the share of steps that keep the j-th drafted token."""
    return 1.0 + sum(survival)


def step_cost(length: float, draft: float, check: float, other: float = 0.0) -> float:
    """A step that drafts `length` tokens at `draft` each and takes `check` to check them and the pending one."""
    return length * draft + check + other


def mean_step_cost(drafted: Sequence[float], draft: float, checks: Sequence[float], other: float = 0.0) -> float:
    """The same where drafts differ in length: drafted[j - 1] is the share of steps that draft a j-th token.

    Args:
        checks: v(1), v(2), ...: at least one more than `drafted` has places.
    """
    more = sum(share * (checks[j + 1] - checks[j]) for j, share in enumerate(drafted))
    return sum(drafted) * draft + checks[0] + more + other


def break_even(length: int, draft: float, check: float, other: float = 0.0) -> float:
    """The share of `length` drafted tokens that must stay for a step to be as fast as plain ones; over 1 none can."""
    return (step_cost(length, draft, check, other) - 1) / length


def speed_up(tokens: float, step: float) -> float:
    """S, over plain decoding, of steps that bring so many tokens and cost so much."""
    return tokens / step
