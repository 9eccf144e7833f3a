"""Fair measurement: contenders take turns on all prompts; what a stop of this program disturbed is measured again."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import exp, sqrt
from random import Random
from statistics import fmean, stdev
from types import FrameType
from typing import TypeVar

from specchat.bench.contender import BenchPrompt, Contender, Run


@dataclass(frozen=True)
class Sample:
    """One reply of one contender; `repeat` counts from 0."""

    contender: str
    prompt: BenchPrompt
    repeat: int
    run: Run


@dataclass(frozen=True)
class BenchProgress:
    """The next measurement, and the completed fraction, 0 to 1."""

    contender: str
    prompt: str
    fraction: float


def measure(
    contenders: Sequence[Contender],
    prompts: Sequence[BenchPrompt],
    repeats: int,
    most: int,
    notify: Callable[[BenchProgress], None],
    report_failure: Callable[[Contender, Exception], None],
    enough: Callable[[Sequence[Sample]], bool] = lambda _: False,
) -> Iterator[Sample]:
    """Replies of up to `most` tokens, after a warm-up of each contender on the first prompt.

    A prompt is answered `repeats` times, fewer if its replies so far are `enough`.

    Each round but the first has a random, reproducible order, because a contender's traces in the processor's caches
    affect the next. Another program that fails goes to `report_failure` and is left out; our own errors are raised.
    """
    running = list(contenders)

    def attempt(contender: Contender, work: Callable[[], Run | None]) -> Run | None:
        try:
            return work()
        except Exception as error:
            if not contender.rival:
                raise
            report_failure(contender, error)
            running.remove(contender)
            return None

    for contender in contenders:
        notify(BenchProgress(contender.name, "warm-up", 0.0))
        attempt(contender, partial(contender.warm_up, prompts[0]))
    for place, prompt in enumerate(prompts):
        answered: list[Sample] = []
        for repeat in range(repeats):
            done = place * repeats + repeat
            order = Random(done).sample(running, len(running)) if done else list(running)
            for turn, contender in enumerate(order):
                fraction = (done + turn / len(running)) / (len(prompts) * repeats)
                notify(BenchProgress(contender.name, prompt.id, fraction))
                run = attempt(contender, partial(contender.run, prompt, most))
                if run is not None:
                    answered.append(Sample(contender.name, prompt, repeat, run))
                    yield answered[-1]
            if enough(answered):
                break


SURE = 1.96
"""Standard errors on each side of a mean that hold it in 95 of 100 cases."""


def ratio_interval(logs: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of ratios, given as logarithms, and the ends of its 95 % interval; unbounded for one ratio."""
    mean = fmean(logs)
    spread = SURE * stdev(logs) / sqrt(len(logs)) if len(logs) > 1 else float("inf")
    return exp(mean), exp(mean - spread), exp(mean + spread)


Measured = TypeVar("Measured")


class Stops:
    """Counts how often this process went on after a stop."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside the block, which belongs to the main thread. Windows stops no processes."""
        if sys.platform == "win32":
            yield
            return
        before = signal.signal(signal.SIGCONT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1

    def undisturbed(self, measure: Callable[[], Measured]) -> Measured:
        """Call `measure` until it ran without a stop."""
        while True:
            before, measured = self.count, measure()
            if self.count == before:
                return measured


STOPS = Stops()
"""The stops of this process."""
