"""All contenders on all prompts, in turn, so that whatever slows the machine slows all of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

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
    """The next measurement, and the part that is done, in 0..1."""

    contender: str
    prompt: str
    fraction: float


def measure(
    contenders: Sequence[Contender],
    prompts: Sequence[BenchPrompt],
    repeats: int,
    most: int,
    told: Callable[[BenchProgress], None],
    failed: Callable[[Contender, Exception], None],
) -> Iterator[Sample]:
    """Replies of up to `most` tokens, after a warm-up of each contender on the first prompt.

    The order of the contenders is drawn for each reply but the first, always alike: what one leaves in the processor's
    caches slows or speeds up the next. Another program that fails is told to `failed` and left out from then on; an
    error of ours is raised.
    """
    running = list(contenders)

    def attempt(contender: Contender, work: Callable[[], Run | None]) -> Run | None:
        try:
            return work()
        except Exception as error:
            if not contender.rival:
                raise
            failed(contender, error)
            running.remove(contender)
            return None

    for contender in contenders:
        told(BenchProgress(contender.name, "warm-up", 0.0))
        attempt(contender, partial(contender.warm_up, prompts[0]))
    rounds = [(prompt, repeat) for prompt in prompts for repeat in range(repeats)]
    for done, (prompt, repeat) in enumerate(rounds):
        order = Random(done).sample(running, len(running)) if done else list(running)
        for place, contender in enumerate(order):
            told(BenchProgress(contender.name, prompt.id, (done + place / len(running)) / len(rounds)))
            run = attempt(contender, partial(contender.run, prompt, most))
            if run is not None:
                yield Sample(contender.name, prompt, repeat, run)
