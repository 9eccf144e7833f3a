"""A race (Maron and Moore 1994): contenders answer the same prompts, and clearly slower ones leave it.

Those about as fast as the leader answer all prompts again, while there is time: on a machine that others use too, a
single reply is off by a tenth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, sqrt
from random import Random
from statistics import fmean, median

from specchat.bench.contender import CLOCK, BenchPrompt, Clock, Different, Run
from specchat.bench.interleaved import ratio_interval
from specchat.bench.ours import Ours
from specchat.bench.summary import PLAIN

TOKENS = 64
"""Longest reply."""
HOPELESS = 0.4
"""Share of the leader's speed under which a strategy's other draft lengths are not tried."""
ERRORS = 1.5
"""Standard errors by which a contender that leaves is slower than the leader."""
SPREAD, ASSUMED = 0.35, 2
"""Assumed standard deviation of a ratio's logarithm between prompts, and the number of prompts that it counts as."""
REPEATS = 5
"""Replies of the last ones to each prompt, at most."""


@dataclass(frozen=True)
class ContenderSpeed:
    """Speed of a contender over plain decoding: geometric mean over `prompts` with its 95 % interval.

    Of several replies to a prompt the median counts.
    """

    name: str
    times: float
    low: float
    high: float
    prompts: int


@dataclass(frozen=True)
class RaceProgress:
    """The next reply: contender, prompts that were answered, and contenders left."""

    contender: str
    answered: int
    left: int


Notify = Callable[[RaceProgress], None]


class ContenderRace:
    """One race."""

    def __init__(
        self,
        plain: Ours,
        contenders: Sequence[Ours],
        prompts: Sequence[BenchPrompt],
        clock: Clock = CLOCK,
        base: Ours | None = None,
    ) -> None:
        """Prepare a race of `contenders`; `base`, one of them, never leaves it."""
        self._plain, self._contenders, self._prompts, self._clock = plain, contenders, prompts, clock
        self._base = base
        self._logs: dict[str, dict[str, list[float]]] = {one.name: {} for one in contenders}
        self._replies = 0

    def run(self, seconds: float, notify: Notify, stand_ins: Sequence[Ours] = ()) -> list[ContenderSpeed]:
        """Race for about `seconds`; contenders that ran, the best first, those measured longest before others.

        Each prompt is answered plainly and by every contender left, so that a busy machine slows all of them.
        `stand_ins` answer the first prompt for all contenders of their strategies.

        Raises:
            Different: a text differs.
        """
        end = self._clock() + seconds
        left, order = [*self._contenders], [*self._prompts] * REPEATS
        if stand_ins:
            self._first(stand_ins, order[0], notify)
            left = self._hopeful(stand_ins)
            self._first([one for one in left if one not in stand_ins], order.pop(0), notify)
        else:
            self._warm_up(left, notify)
        for prompt in order:
            known = len(self._logs[left[0].name])
            alone = len(left) == 1 and (left[0] is self._base or known == len(self._prompts))
            # Without a first prompt nothing is known of a contender.
            if alone or (known and self._clock() > end):
                break
            self._answer(prompt, left, notify)
            left = self._left(left)
        return self._sorted()

    def sweep(self, repeats: int, notify: Notify) -> list[ContenderSpeed]:
        """Let all contenders answer all prompts, `repeats` times; the best first.

        Raises:
            Different: a text differs.
        """
        self._warm_up(self._contenders, notify)
        for _ in range(repeats):
            for prompt in self._prompts:
                self._answer(prompt, self._contenders, notify)
        return self._sorted()

    def beside(self, name: str) -> list[ContenderSpeed]:
        """The speeds of all other contenders over that of one, on the prompts that both answered, the best first."""
        found = []
        for other in self._logs:
            ratios = self._ratios(other, name)
            if other != name and ratios:
                found.append(ContenderSpeed(other, *ratio_interval(ratios), len(ratios)))
        return sorted(found, key=lambda one: -one.times)

    def _ratios(self, name: str, base: str) -> list[float]:
        """Logarithms of the speed of one contender over another's, by prompt."""
        mine, its = self._logs[name], self._logs[base]
        return [
            median(one - other for one, other in zip(mine[prompt], its[prompt], strict=False))
            for prompt in mine
            if prompt in its
        ]

    def _hopeful(self, stand_ins: Sequence[Ours]) -> list[Ours]:
        """All contenders of the strategies whose stand-ins are fast enough."""
        (leader,) = self._sorted()[:1]
        slow = {
            one.speculation.strategy for one in stand_ins if fmean(self._ratios(one.name, leader.name)) < log(HOPELESS)
        }
        return [one for one in self._contenders if one.speculation.strategy not in slow]

    def _left(self, left: Sequence[Ours]) -> list[Ours]:
        """The leader, those that may be as fast, and the base."""
        first = left[0].name
        leader = max(left, key=lambda one: fmean(self._ratios(one.name, first)))
        return [one for one in left if one in (leader, self._base) or not self._slower(one.name, leader.name)]

    def _slower(self, name: str, leader: str) -> bool:
        """True if a contender is clearly slower than another."""
        ratios = self._ratios(name, leader)
        mean, count = fmean(ratios), len(ratios)
        squares = ASSUMED * SPREAD**2 + sum((ratio - mean) ** 2 for ratio in ratios)
        return mean + ERRORS * sqrt(squares / (ASSUMED + count - 1) / count) < 0

    def _first(self, some: Sequence[Ours], prompt: BenchPrompt, notify: Notify) -> None:
        if some:
            self._warm_up(some, notify)
            self._answer(prompt, some, notify)

    def _warm_up(self, some: Sequence[Ours], notify: Notify) -> None:
        for one in [self._plain, *some]:
            notify(RaceProgress(one.name, 0, len(self._contenders)))
            one.warm_up(self._prompts[0])

    def _answer(self, prompt: BenchPrompt, left: Sequence[Ours], notify: Notify) -> None:
        answered = self._replies
        self._replies += 1
        notify(RaceProgress(PLAIN, answered, len(left)))
        plain = self._plain.run(prompt, TOKENS)
        # A contender's traces in the processor's caches affect the next.
        for one in Random(self._replies).sample(left, len(left)):
            notify(RaceProgress(one.name, answered, len(left)))
            run = one.run(prompt, TOKENS)
            if not one.free and run.tokens != plain.tokens:
                raise Different(one.name)
            self._logs[one.name].setdefault(prompt.id, []).append(log(_step_ms(plain) / _step_ms(run)))

    def _sorted(self) -> list[ContenderSpeed]:
        found = []
        for name, logs in self._logs.items():
            if logs:
                medians = [median(ratios) for ratios in logs.values()]
                found.append(ContenderSpeed(name, *ratio_interval(medians), len(medians)))
        return sorted(found, key=lambda one: (-one.prompts, -one.times))


def _step_ms(run: Run) -> float:
    """Milliseconds a token, without waits for a processor that other programs used."""
    assert run.stats is not None
    return max(run.stats.ran_ms, 1e-6) / max(1, len(run.tokens))
