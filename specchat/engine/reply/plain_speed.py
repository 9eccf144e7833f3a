"""Speed of plain decoding with a pair: measured at load, and from plain replies after that."""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot, log, sqrt
from statistics import geometric_mean, stdev

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.means import Mean
from specchat.engine.decoding.plain_ratio import OFF
from specchat.engine.decoding.yardstick import Yardstick
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair_info import PairInfo, PlainFacts
from specchat.engine.protocol.tally import Tally
from specchat.engine.reply.measure import REPLY_TOKENS

WEIGHT = 0.5
"""Weight of one plain reply in the measured speed."""


class PlainSpeed:
    """Tokens per second of plain decoding without load, and the yardstick of its current time; 0 if unknown."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self.yardstick = Yardstick(costs)
        self._bare_share = Mean(up=1.0)
        """Part of a plain step that one takes without the processing of text; a ratio of times under the same load."""
        self.forget()

    def begin(self, tokens_per_second: float) -> None:
        """Begin a reply that is compared with this plain speed; with 0 it is compared with none."""
        self.yardstick.begin(1e3 / tokens_per_second if tokens_per_second else 0.0, self._bare_share.value or 1.0)

    def forget(self) -> None:
        """Forget the speeds; the next plain replies measure them."""
        self._greedy = self._sampled = 0.0

    def settle(self, loads: Sequence[tuple[float, float]]) -> None:
        """Take the load factors of plain replies, and of those with drafts after each, as the normal ones."""
        plain, drafted = (geometric_mean(each) for each in zip(*loads, strict=True))
        self._costs.settle(plain, drafted)
        apart = [log(one / other) for one, other in loads]
        spread = stdev(apart) / sqrt(len(apart)) if len(apart) > 1 else 0.0
        self.yardstick = Yardstick(self._costs, hypot(OFF, spread))
        self._greedy /= plain
        self._sampled /= plain

    def fall_back(self, bare: float) -> None:
        """Take the speed of `bare` steps if no reply was measured.

        They are faster than those of a reply, since they have the processor's caches for themselves.
        """
        self._greedy = self._greedy or bare

    def observe(self, tally: Tally, sampling: Sampling) -> None:
        """Update the speed from a reply, if that was plain and long enough."""
        if tally.drafted or tally.tokens < REPLY_TOKENS:
            return
        known, seen = self._greedy if sampling.greedy else self._sampled, self.yardstick.usual_speed
        self._bare_share.add(self.yardstick.bare_share)
        speed = known + WEIGHT * (seen - known) if known else seen
        if sampling.greedy:
            self._greedy = speed
        else:
            self._sampled = speed

    def described(self, info: PairInfo) -> PairInfo:
        """Return `info` with these speeds."""
        return replace(info, plain=PlainFacts(self._greedy, self._sampled))
