"""Ratios of two contenders' speeds on one prompt, from replies of the same rounds, with their intervals.

Replies of a round follow each other, so that what slows the machine for longer slows both. Of ours, waits for a
processor that other programs used do not count.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import exp, isinf, log, sqrt
from statistics import fmean, stdev

from specchat.bench.contender import Run
from specchat.bench.interleaved import Sample

TRIMMED = 4
"""One round of so many is left out at each end: other programs disturb some replies far more than others."""
MIN_ROUNDS = 5
"""Rounds from which an interval is taken at its word."""
Speed = Callable[[Run], float | None]


@dataclass(frozen=True)
class Speeds:
    """Tokens per second of a reply: of one of ours by its running time, beside another program's by the clock."""

    ran: Speed
    clock: Speed

    def ratio(self, above: Run, below: Run) -> float | None:
        """Speed of a reply over that of another; None if unknown."""
        for speed in (self.ran, self.clock):
            over, under = speed(above), speed(below)
            if over and under:
                return over / under
        return None


STEPS = Speeds(lambda run: run.ran_speed, lambda run: run.speed)
WHOLE = Speeds(lambda run: run.whole_ran_speed, lambda run: run.whole_speed)
LATER = Speeds(lambda run: run.later_speed, lambda run: run.later_speed)


@dataclass(frozen=True)
class PairedRatio:
    """A trimmed geometric mean over `rounds`, with its 95 % interval, which is unbounded for one round."""

    times: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, above: Iterable[Sample], below: Iterable[Sample], speeds: Speeds) -> "PairedRatio | None":
        """Compare replies of the same rounds; None if none have a speed."""
        other = {sample.repeat: sample.run for sample in below}
        both = (speeds.ratio(one.run, other[one.repeat]) for one in above if one.repeat in other)
        return cls._of([log(ratio) for ratio in both if ratio])

    @classmethod
    def _of(cls, logs: list[float]) -> "PairedRatio | None":
        if not logs:
            return None
        count = len(logs)
        cut = count // TRIMMED
        trimmed = sorted(logs)[cut : count - cut]
        mean = fmean(trimmed)
        if len(trimmed) < 2:
            return cls(exp(mean), 0.0, float("inf"), count)
        # Standard error of a trimmed mean, from the winsorised spread (Yuen 1974).
        spread = stdev([trimmed[0]] * cut + trimmed + [trimmed[-1]] * cut)
        half = _t(len(trimmed) - 1) * spread * sqrt((count - 1) / (len(trimmed) * (len(trimmed) - 1)))
        return cls(exp(mean), exp(mean - half), exp(mean + half), count)

    def as_json(self) -> dict[str, float | None]:
        return asdict(self) | {"high": None if isinf(self.high) else self.high}

    def within(self, share: float) -> bool:
        """True if both ends of the interval differ from the ratio by this `share` at most."""
        return self.rounds >= MIN_ROUNDS and self.high / self.times <= 1 + share and self.low / self.times >= 1 - share


def all_within(samples: Sequence[Sample], base: str, share: float) -> bool:
    """True if all ratios to `base` on a prompt are known within this `share`, of steps and of whole replies."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.contender, []).append(sample)
    found = (
        PairedRatio.of(of_it, by_name.get(base, []), speeds)
        for name, of_it in by_name.items()
        for speeds in (STEPS, WHOLE)
        if name != base
    )
    return all(ratio is None or ratio.within(share) for ratio in found)


def _t(freedom: int) -> float:
    """Student's 97.5 % quantile, by the expansion of Abramowitz and Stegun (1964), 26.7.5."""
    z = 1.96
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3
