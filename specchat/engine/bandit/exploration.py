"""Exploration: an arm that is not taken drafts now and then, as its drafts must be seen to be known.

A chain explores with one token, and a whole draft follows where that was accepted. A tree explores whole, where it
could pay. This is so seldom that it costs little of the time.
"""

from collections.abc import Mapping, Sequence

from specchat.engine.bandit.arms import Arm
from specchat.engine.bandit.choice import Choice
from specchat.engine.bandit.estimates import MARGIN, Estimates
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.strategy import MAX_DRAFT_LENGTH

EXPLORED = 1
"""Tokens of a short exploration."""
SHARE = 0.018
"""Share of the time that exploring all arms may lose."""
SOONEST, LATEST = 8, 64
"""Steps between two explorations of an arm."""
BARREN, SELDOM = 4, 4.0
"""Explorations in vain after which they get rarer by as much again, and times as rare that they get at most."""
CLOSE = 0.9
"""Times plain from which on a whole draft explores: it may pay, and loses little."""
ENOUGH = 32
"""Drafts by which an arm is known well enough when a pair is loaded."""
TREE_GAIN = 1.25
"""Times the accepted tokens of a chain that a tree of the same model has at most."""
NEVER = float("inf")


def patience(lost_ms: float, plain: float, barren: int) -> float:
    """Steps between two explorations that lose so many milliseconds each, after some in vain."""
    latest = LATEST * min(1 + barren / BARREN, SELDOM)
    return min(max(SOONEST, lost_ms * plain / SHARE * latest / LATEST), latest)


class Exploration:
    """Of all arms."""

    def __init__(self, arms: Mapping[str, Arm], estimates: Estimates, costs: StepCosts) -> None:
        self._arms, self._estimates, self._costs = arms, estimates, costs
        self._sharing = max(1, sum(arm.chain is None for arm in arms.values()))
        """Times an exploration of one waits as long as if it were the only one."""

    @property
    def pressing(self) -> bool:
        """Whether an arm is to be explored again at once."""
        return any(arm.again for arm in self._arms.values())

    def due(self, text: Sequence[int], best: Choice, step: int, limit: int, looked: bool) -> tuple[str, int] | None:
        """The arm to explore in place of the `best` one at this step, and of `limit` tokens the most that it drafts.

        Those that waited for long are looked at where costs were `looked` at, the one that waited longest first; one
        whose last exploration asks for another, at each step.
        """
        plain = self._estimates.plain
        for name, arm in sorted(self._arms.items(), key=lambda item: item[1].last):
            waited = looked and step - arm.last >= self._sharing * SOONEST
            if name == best.arm or not (waited or arm.again):
                continue
            if arm.chain is not None:
                tried, lost_ms = limit, self._lost_by_tree(arm, arm.chain, best, limit)
            else:
                whole = (
                    arm.again or self._estimates.estimate(name, best.kind).times > CLOSE or self._costs.at_once(name)
                )
                tried, lost_ms = limit if whole else min(limit, EXPLORED), NEVER
                if self._could_pay(name, limit):
                    lost_ms = self._lost_by_chain(arm, whole, best, limit)
            if lost_ms == NEVER:
                continue
            waits = max(patience(lost_ms, plain, arm.barren), arm.reads.behind(text) * plain / SHARE)
            if arm.again or step - arm.last >= self._sharing * waits:
                return name, tried
        return None

    def unknown(self, limit: int) -> tuple[str, int] | None:
        """The arm that is known by fewest drafts, if by too few, which drafts up to `limit` tokens."""
        chains = [(arm.known, name) for name, arm in self._arms.items() if arm.chain is None]
        known, name = min(chains, default=(ENOUGH, ""))
        return (name, limit) if known < ENOUGH and self._could_pay(name, limit) else None

    def _could_pay(self, name: str, limit: int) -> bool:
        """Whether an arm would be taken if all that it drafts were accepted."""
        longest = min(limit, MAX_DRAFT_LENGTH)
        most = max(
            (1 + n) / (self._costs.drafting(name, n) + self._estimates.verify_ms[1 + n] + self._costs.other_ms)
            for n in range(1, longest + 1)
        )
        return most > self._estimates.plain * MARGIN

    def _lost_by_chain(self, arm: Arm, whole: bool, best: Choice, limit: int) -> float:
        """Milliseconds that exploring a chain loses by what is known of it; a short one brings nothing."""
        accepted, drafted = arm.lengths(best.kind) if whole else (0.0, EXPLORED)
        row = min(int(drafted), limit, MAX_DRAFT_LENGTH)
        ms = self._costs.drafting(arm.drafter.name, drafted) + self._estimates.verify_ms[1 + row] + self._costs.other_ms
        return ms - (1 + accepted) / best.throughput

    def _lost_by_tree(self, tree: Arm, chain: Arm, best: Choice, limit: int) -> float:
        """Milliseconds that exploring a tree loses by what is known of it, as much as of the chain before that.

        NEVER where it could not pay even if as much of it were accepted as of a tree can be.
        """
        accepted, drafted = chain.lengths(best.kind)
        draft_ms = drafted * self._costs.draft(chain.drafter.name)
        ms = draft_ms + self._estimates.verify_ms[1 + min(limit, MAX_DRAFT_LENGTH)] + self._costs.other_ms
        if (1 + TREE_GAIN * accepted) / ms < best.throughput * MARGIN:
            return NEVER
        return ms - (1 + min(accepted, tree.lengths(best.kind)[0])) / best.throughput
