"""Ranges of seeds and sampling options, for options, files and settings."""

from collections.abc import Mapping

from specchat.dataclass import dataclass
from specchat.engine.strategy import MAX_DRAFT_LENGTH

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; `high` None is unbounded, and `above` excludes `low`."""

    low: int
    high: int | None = None
    whole: bool = False
    above: bool = False

    @property
    def words(self) -> str:
        """`from 0 to 10`, `above 0`, `above 0, at most 1`."""
        if self.high is None:
            return f"{'above' if self.above else 'from'} {self.low}"
        return f"above {self.low}, at most {self.high}" if self.above else f"from {self.low} to {self.high}"

    @property
    def number(self) -> str:
        """`a whole number from 1 to 15`."""
        return f"{'a whole number' if self.whole else 'a number'} {self.words}"

    def read(self, text: str) -> float | None:
        """The number of the range that `text` is, with a point or a comma; None where it is none."""
        try:
            value: float = int(text) if self.whole else float(text.replace(",", "."))
        except ValueError:
            return None
        return value if value in self else None

    def __contains__(self, value: float) -> bool:
        return (value > self.low if self.above else value >= self.low) and (self.high is None or value <= self.high)


SEEDS = Range(0, MAX_SEED, whole=True)
DRAFT_LENGTHS = Range(1, MAX_DRAFT_LENGTH, whole=True)
MAX_TOKENS = Range(1, 10_000_000, whole=True)

SAMPLING: Mapping[str, Range] = {
    "temperature": Range(0, 10),
    "top_k": Range(0, whole=True),
    "top_p": Range(0, 1, above=True),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0, 10, above=True),
    "presence_penalty": Range(-10, 10),
    "frequency_penalty": Range(-10, 10),
}
"""The fields of `engine.options.Sampling` that a person sets."""
