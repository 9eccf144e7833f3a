"""Successive halving (Jamieson and Talwalkar 2016): all contenders on few prompts, the faster half on twice as many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log

from specchat.bench.contender import CLOCK, BenchPrompt, Clock, Different, Run
from specchat.bench.ours import Ours
from specchat.bench.ratios import ratio_interval
from specchat.bench.summary import PLAIN

FIRST_PROMPTS = 2
TOKENS = 64
"""Longest reply."""


@dataclass(frozen=True)
class ContenderSpeed:
    """Speed of a contender over plain decoding: geometric mean over `prompts` with its 95 % interval."""

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
        halves: bool = True,
    ) -> None:
        """Search among `contenders`; without `halves` all answer all prompts."""
        self._halves = halves
        self._plain, self._contenders, self._prompts, self._clock = plain, contenders, prompts, clock
        self._logs: dict[str, list[float]] = {one.name: [] for one in contenders}

    def run(self, seconds: float, notify: Callable[[HalvingProgress], None]) -> list[ContenderSpeed]:
        """Search for about `seconds`; all contenders, the best first, those measured longest before others.

        Each prompt is answered plainly and by every contender left, so that a busy machine slows all of them.

        Raises:
            Different: a text differs.
        """
        end = self._clock() + seconds
        left, number, taken = list(self._contenders), 0, 0
        for one in (self._plain, *left):
            notify(HalvingProgress(one.name, 0, len(left)))
            one.warm_up(self._prompts[0])
        while taken < len(self._prompts):
            number += 1
            some = self._prompts[taken : taken + FIRST_PROMPTS * 2 ** (number - 1)]
            for prompt in some:
                # The first round is whole: without it nothing is known of a contender.
                if number > 1 and self._clock() > end:
                    return self._sorted()
                self._answer(prompt, left, number, notify)
            taken += len(some)
            if self._halves and len(left) > 2:
                order = [one.name for one in self._sorted()]
                left = sorted(left, key=lambda one: order.index(one.name))[: max(2, ceil(len(left) / 2))]
        return self._sorted()

    def beside(self, name: str) -> list[ContenderSpeed]:
        """The speeds of all other contenders over that of one, on the prompts that both answered, the best first."""
        base, found = self._logs[name], []
        for other, logs in self._logs.items():
            ratios = [mine - its for mine, its in zip(logs, base, strict=False)]
            if other != name and ratios:
                found.append(ContenderSpeed(other, *ratio_interval(ratios), len(ratios)))
        return sorted(found, key=lambda one: -one.times)

    def _answer(
        self, prompt: BenchPrompt, left: Sequence[Ours], number: int, notify: Callable[[HalvingProgress], None]
    ) -> None:
        notify(HalvingProgress(PLAIN, number, len(left)))
        plain = self._plain.run(prompt, TOKENS)
        for one in left:
            notify(HalvingProgress(one.name, number, len(left)))
            run = one.run(prompt, TOKENS)
            if not one.free and run.tokens != plain.tokens:
                raise Different(one.name)
            self._logs[one.name].append(log(_step_ms(plain) / _step_ms(run)))

    def _sorted(self) -> list[ContenderSpeed]:
        found = [ContenderSpeed(name, *ratio_interval(logs), len(logs)) for name, logs in self._logs.items()]
        return sorted(found, key=lambda one: (-one.prompts, -one.times))


def _step_ms(run: Run) -> float:
    """Milliseconds a token, without waits for a processor that other programs used."""
    assert run.stats is not None
    return max(run.stats.ran_ms, 1e-6) / max(1, len(run.tokens))
