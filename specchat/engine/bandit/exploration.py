"""Exploration: an arm that is not taken drafts now and then, so that its acceptance is known.

A chain explores with one token; a whole draft follows if it is accepted. A tree explores with a whole draft if it could
pay. The time spent is bounded.
"""

from collections.abc import Mapping, Sequence

from specchat.engine.bandit.arms import Arm
from specchat.engine.bandit.choice import ArmChoice
from specchat.engine.bandit.estimates import MARGIN, Estimates
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.strategy import MAX_DRAFT_LENGTH

EXPLORED = 1
"""Draft tokens of a short exploration."""
SHARE = 0.018
"""Largest share of the time lost to exploring, over all arms."""
UNSURE = 4.0
"""Times that share for an arm that is close, while fewer than `ENOUGH` of its drafts are known: of a slow model a load
has time for few."""
SOONEST, LATEST = 8, 64
"""Fewest and most steps between two explorations of an arm."""
BARREN, SELDOM = 4, 4.0
"""Explorations in vain that add one more `LATEST` to the wait, and its largest multiple."""
CLOSE = 0.9
"""Ratio to plain above which an arm explores with a whole draft: it may pay, and loses little."""
ENOUGH = 32
"""Drafts after which an arm is known well enough while a pair is loaded."""
TREE_GAIN = 1.25
"""Largest ratio of accepted tokens of a tree to those of a chain by the same model."""
NEVER = float("inf")


def patience(lost: float, barren: int) -> float:
    """Steps between two explorations that lose what `lost` steps may lose, after `barren` ones in vain."""
    latest = LATEST * min(1 + barren / BARREN, SELDOM)
    return min(max(SOONEST, lost * latest / LATEST), latest)


class Exploration:
    """Schedule of the explorations of all arms."""

    def __init__(self, arms: Mapping[str, Arm], estimates: Estimates, costs: StepCosts) -> None:
        self._arms, self._estimates, self._costs = arms, estimates, costs
        self._sharing = max(1, sum(arm.chain is None for arm in arms.values()))
        """Number of chains: each waits that many times longer, as they share the time for exploring."""

    @property
    def pressing(self) -> bool:
        """True if an arm is due to be explored again at once."""
        return any(arm.again for arm in self._arms.values())

    def due(
        self, token_ids: Sequence[int], best: ArmChoice, step: int, limit: int, reviewed: bool
    ) -> tuple[str, int] | None:
        """Return the arm to explore in place of the `best` one at this step, and its draft limit up to `limit`.

        An arm after an accepted short exploration is considered at every step, others only if costs were `reviewed`.
        The one that waited longest comes first.
        """
        plain = self._estimates.plain
        for name, arm in sorted(self._arms.items(), key=lambda item: item[1].last):
            waited = reviewed and step - arm.last >= self._sharing * SOONEST
            if name == best.arm or not (waited or arm.again):
                continue
            whole = False
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
            per_ms = plain / (UNSURE * SHARE if whole and arm.known < ENOUGH else SHARE)
            waits = max(patience(lost_ms * per_ms, arm.barren), arm.reads.reading_ms(token_ids) * per_ms)
            if arm.again or step - arm.last >= self._sharing * waits:
                return name, tried
        return None

    def unknown(self, limit: int) -> tuple[str, int] | None:
        """Return the arm with the fewest drafts, if too few and it could pay, and its draft limit."""
        chains = [(arm.known, name) for name, arm in self._arms.items() if arm.chain is None]
        known, name = min(chains, default=(ENOUGH, ""))
        return (name, limit) if known < ENOUGH and self._could_pay(name, limit) else None

    def _could_pay(self, name: str, limit: int) -> bool:
        """Return True if the arm would be taken were all its tokens accepted."""
        longest = min(limit, MAX_DRAFT_LENGTH)
        most = max(
            (1 + n) / (self._costs.draft_ms(name, n) + self._estimates.verify_ms[1 + n] + self._costs.other_ms)
            for n in range(1, longest + 1)
        )
        return most > self._estimates.plain * MARGIN

    def _lost_by_chain(self, arm: Arm, whole: bool, best: ArmChoice, limit: int) -> float:
        """Milliseconds expected to be lost by exploring a chain; a short exploration counts as rejected."""
        accepted, drafted = arm.lengths(best.kind) if whole else (0.0, EXPLORED)
        row = min(int(drafted), limit, MAX_DRAFT_LENGTH)
        ms = self._costs.draft_ms(arm.drafter.name, drafted) + self._estimates.verify_ms[1 + row] + self._costs.other_ms
        return ms - (1 + accepted) / best.throughput

    def _lost_by_tree(self, tree: Arm, chain: Arm, best: ArmChoice, limit: int) -> float:
        """Milliseconds expected to be lost by exploring a tree, NEVER if it cannot pay even at best.

        At most as many tokens as of the chain count as accepted.
        """
        accepted, drafted = chain.lengths(best.kind)
        draft_ms = drafted * self._costs.draft_token_ms(chain.drafter.name)
        ms = draft_ms + self._estimates.verify_ms[1 + min(limit, MAX_DRAFT_LENGTH)] + self._costs.other_ms
        if (1 + TREE_GAIN * accepted) / ms < best.throughput * MARGIN:
            return NEVER
        return ms - (1 + min(accepted, tree.lengths(best.kind)[0])) / best.throughput
