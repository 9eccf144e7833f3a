"""Exploration: an arm that is not taken drafts now and then, as its drafts must be seen to be known.

A chain explores with one token, and a whole draft follows where that was accepted. A tree explores whole, where it
could pay. This is so seldom that it costs little of the time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specchat.engine.bandit.arms import Arm
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


@dataclass(frozen=True)
class Situation:
    """A step of a text of some `kind`, whose draft may have `limit` tokens.

    Attributes:
        looked: whether costs were looked at.
        drafting: the arm that would draft otherwise.
        best: its expected throughput, in tokens a millisecond.
        plain: that of plain decoding.
        margin: an arm must be expected to be so much faster to be taken.
        verify_ms: milliseconds of verifying 0, 1, ... rows.
        times: an arm's expected throughput in times plain's.
        tries: whether arms of which nothing is known draft at once.
    """

    step: int
    limit: int
    kind: int
    looked: bool
    drafting: str
    best: float
    plain: float
    margin: float
    verify_ms: Sequence[float]
    times: Callable[[str], float]
    tries: bool = False


def patience(lost_ms: float, plain: float, barren: int) -> float:
    """Steps between two explorations that lose so many milliseconds each, after some in vain."""
    latest = LATEST * min(1 + barren / BARREN, SELDOM)
    return min(max(SOONEST, lost_ms * plain / SHARE * latest / LATEST), latest)


class Exploration:
    """Of all arms."""

    def __init__(self, arms: Mapping[str, Arm], costs: StepCosts) -> None:
        self._arms, self._costs = arms, costs
        self._sharing = max(1, sum(arm.chain is None for arm in arms.values()))
        """Times an exploration of one waits as long as if it were the only one."""

    @property
    def pressing(self) -> bool:
        """Whether an arm is to be explored again at once."""
        return any(arm.again for arm in self._arms.values())

    def due(self, text: Sequence[int], now: Situation) -> tuple[str, int] | None:
        """The arm to explore in place of the best one, and the most tokens that it drafts.

        Those that waited for long are looked at where costs were, the one that waited longest first; one whose last
        exploration asks for another, at each step.
        """
        if now.tries:
            return self._unknown(now)
        for name, arm in sorted(self._arms.items(), key=lambda item: item[1].last):
            waited = now.looked and now.step - arm.last >= self._sharing * SOONEST
            if name == now.drafting or not (waited or arm.again):
                continue
            if arm.chain is not None:
                tried, lost_ms = now.limit, self._lost_by_tree(arm, arm.chain, now)
            else:
                whole = arm.again or now.times(name) > CLOSE or self._costs.at_once(name)
                tried, lost_ms = now.limit if whole else min(now.limit, EXPLORED), NEVER
                if self._could_pay(name, now):
                    lost_ms = self._lost_by_chain(arm, whole, now)
            if lost_ms == NEVER:
                continue
            waits = max(patience(lost_ms, now.plain, arm.barren), arm.reads.behind(text) * now.plain / SHARE)
            if arm.again or now.step - arm.last >= self._sharing * waits:
                return name, tried
        return None

    def _unknown(self, now: Situation) -> tuple[str, int] | None:
        """The arm that is known by fewest drafts, if by too few."""
        chains = [(arm.known, name) for name, arm in self._arms.items() if arm.chain is None]
        known, name = min(chains, default=(ENOUGH, ""))
        return (name, now.limit) if known < ENOUGH and self._could_pay(name, now) else None

    def _could_pay(self, name: str, now: Situation) -> bool:
        """Whether an arm would be taken if all that it drafts were accepted."""
        longest = min(now.limit, MAX_DRAFT_LENGTH)
        most = max(
            (1 + n) / (self._costs.drafting(name, n) + now.verify_ms[1 + n] + self._costs.other_ms)
            for n in range(1, longest + 1)
        )
        return most > now.plain * now.margin

    def _lost_by_chain(self, arm: Arm, whole: bool, now: Situation) -> float:
        """Milliseconds that exploring a chain loses by what is known of it; a short one brings nothing."""
        accepted, drafted = arm.lengths(now.kind) if whole else (0.0, EXPLORED)
        row = min(int(drafted), now.limit, MAX_DRAFT_LENGTH)
        ms = self._costs.drafting(arm.drafter.name, drafted) + now.verify_ms[1 + row] + self._costs.other_ms
        return ms - (1 + accepted) / now.best

    def _lost_by_tree(self, tree: Arm, chain: Arm, now: Situation) -> float:
        """Milliseconds that exploring a tree loses by what is known of it, as much as of the chain before that.

        NEVER where it could not pay even if as much of it were accepted as of a tree can be.
        """
        accepted, drafted = chain.lengths(now.kind)
        draft_ms = drafted * self._costs.draft(chain.drafter.name)
        ms = draft_ms + now.verify_ms[1 + min(now.limit, MAX_DRAFT_LENGTH)] + self._costs.other_ms
        if (1 + TREE_GAIN * accepted) / ms < now.best * now.margin:
            return NEVER
        return ms - (1 + min(accepted, tree.lengths(now.kind)[0])) / now.best
