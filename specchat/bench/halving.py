"""Successive halving (Jamieson and Talwalkar 2016): all contenders on few prompts, the faster half on twice as many.

Those about as fast as the leader at the end answer all prompts again, while there is time: on a machine that others use
too, a single reply is off by a tenth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from random import Random
from statistics import fmean, median

from specchat.bench.contender import CLOCK, BenchPrompt, Clock, Different, Run
from specchat.bench.ours import Ours
from specchat.bench.ratios import ratio_interval
from specchat.bench.summary import PLAIN

FIRST_PROMPTS = 2
TOKENS = 64
"""Longest reply."""
NEAR = 0.95
"""Share of the leader's speed from which a contender may be the fastest after all."""
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
class HalvingProgress:
    """The next reply: contender, round from 1, and contenders left."""

    contender: str
    round: int
    left: int


class Halving:
    """The course of one search."""

    def __init__(
        self,
        plain: Ours,
        contenders: Sequence[Ours],
        prompts: Sequence[BenchPrompt],
        clock: Clock = CLOCK,
        base: Ours | None = None,
        first: int = FIRST_PROMPTS,
    ) -> None:
        """Search among `contenders`; the first round has `first` prompts. `base`, one of them, is never left out."""
        self._plain, self._contenders, self._prompts, self._clock = plain, contenders, prompts, clock
        self._base, self._first = base, first
        self._logs: dict[str, dict[str, list[float]]] = {one.name: {} for one in contenders}
        self._replies = 0

    def run(self, seconds: float, notify: Callable[[HalvingProgress], None]) -> list[ContenderSpeed]:
        """Search for about `seconds`; all contenders, the best first, those measured longest before others.

        Each prompt is answered plainly and by every contender left, so that a busy machine slows all of them.

        Raises:
            Different: a text differs.
        """
        end = self._clock() + seconds
        left, number, taken = list(self._contenders), 0, 0
        self._warm_up(notify)
        while taken < len(self._prompts):
            number += 1
            some = self._prompts[taken : taken + self._first * 2 ** (number - 1)]
            for prompt in some:
                # The first round is whole: without it nothing is known of a contender.
                if number > 1 and self._clock() > end:
                    return self._sorted()
                self._answer(prompt, left, number, notify)
            taken += len(some)
            left = self._kept(left, max(2, ceil(len(left) / 2)))
        for _ in range(1, REPEATS):
            left = self._near(left)
            for prompt in self._prompts if len(left) > 1 else ():
                if self._clock() > end:
                    return self._sorted()
                self._answer(prompt, left, number + 1, notify)
        return self._sorted()

    def sweep(self, repeats: int, notify: Callable[[HalvingProgress], None]) -> list[ContenderSpeed]:
        """Let all contenders answer all prompts, `repeats` times; the best first.

        Raises:
            Different: a text differs.
        """
        self._warm_up(notify)
        for number in range(1, repeats + 1):
            for prompt in self._prompts:
                self._answer(prompt, self._contenders, number, notify)
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

    def _kept(self, left: list[Ours], count: int) -> list[Ours]:
        """The fastest `count`, and the base."""
        order = [one.name for one in self._sorted()]
        fastest = sorted(left, key=lambda one: order.index(one.name))
        return [one for place, one in enumerate(fastest) if place < count or one is self._base]

    def _near(self, left: list[Ours]) -> list[Ours]:
        """The leader, those about as fast, and the base beside these."""
        leader = max(left, key=lambda one: fmean(self._ratios(one.name, left[0].name)))
        times = {one.name: exp(fmean(self._ratios(one.name, leader.name))) for one in left}
        near = [one for one in left if times[one.name] >= NEAR]
        return near if self._base is None or self._base in near or near == [leader] else [*near, self._base]

    def _warm_up(self, notify: Callable[[HalvingProgress], None]) -> None:
        for one in (self._plain, *self._contenders):
            notify(HalvingProgress(one.name, 0, len(self._contenders)))
            one.warm_up(self._prompts[0])

    def _answer(
        self, prompt: BenchPrompt, left: Sequence[Ours], number: int, notify: Callable[[HalvingProgress], None]
    ) -> None:
        notify(HalvingProgress(PLAIN, number, len(left)))
        plain = self._plain.run(prompt, TOKENS)
        self._replies += 1
        # A contender's traces in the processor's caches affect the next.
        for one in Random(self._replies).sample(left, len(left)):
            notify(HalvingProgress(one.name, number, len(left)))
            run = one.run(prompt, TOKENS)
            if not one.free and run.tokens != plain.tokens:
                raise Different(one.name)
            self._logs[one.name].setdefault(prompt.id, []).append(log(_step_ms(plain) / _step_ms(run)))

    def _sorted(self) -> list[ContenderSpeed]:
        found = []
        for name, logs in self._logs.items():
            medians = [median(ratios) for ratios in logs.values()]
            found.append(ContenderSpeed(name, *ratio_interval(medians), len(medians)))
        return sorted(found, key=lambda one: (-one.prompts, -one.times))


def _step_ms(run: Run) -> float:
    """Milliseconds a token, without waits for a processor that other programs used."""
    assert run.stats is not None
    return max(run.stats.ran_ms, 1e-6) / max(1, len(run.tokens))
