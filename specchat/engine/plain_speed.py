"""Speed of plain decoding with a pair: measured at load, and from plain replies after that."""

from dataclasses import replace

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.yardstick import Yardstick
from specchat.engine.measure import REPLY_TOKENS
from specchat.engine.options import Sampling
from specchat.engine.pair import PairInfo
from specchat.engine.tally import Tally

WEIGHT = 0.5
"""Weight of one plain reply in the measured speed."""


class PlainSpeed:
    """Tokens per second of plain decoding without load, and the yardstick of its current time; 0 if unknown."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self.yardstick = Yardstick(costs)
        self._verify_share = 1.0
        """Part of a plain step that the target's pass takes."""
        self.forget()

    def begin(self, tokens_per_second: float) -> None:
        """Begin a reply that is compared with this plain speed; with 0 it is compared with none."""
        self.yardstick.begin(1e3 / tokens_per_second if tokens_per_second else 0.0, self._verify_share)

    def forget(self) -> None:
        """Forget the speeds; the next plain replies measure them."""
        self._greedy = self._sampled = 0.0

    def settle(self, plain: float, drafted: float) -> None:
        """Take the current load factors, of `plain` and of `drafted` replies, as the normal ones."""
        self._costs.settle(plain, drafted)
        self.yardstick = Yardstick(self._costs)
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
        if tally.ran_ms > 0:
            self._verify_share = tally.verify_ms / tally.ran_ms
        speed = known + WEIGHT * (seen - known) if known else seen
        if sampling.greedy:
            self._greedy = speed
        else:
            self._sampled = speed

    def described(self, info: PairInfo) -> PairInfo:
        """Return `info` with these speeds."""
        return replace(info, plain_tokens_per_second=self._greedy, plain_sampled_tokens_per_second=self._sampled)
