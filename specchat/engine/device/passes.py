"""A draft that captured passes make."""

from collections.abc import Callable
from dataclasses import dataclass

from specchat.engine.decoding.draft import WIDTH
from specchat.engine.decoding.stop import Stop


@dataclass(frozen=True)
class Passes:
    """A draft of which passes may still be to come: a token each, or a level of a tree."""

    name: str
    limit: int
    one: Callable[[int], None]
    stop: Stop | None
    """Of a chain."""
    least: float = 0.0
    """Of a tree."""

    @property
    def tree(self) -> bool:
        return self.stop is None

    def ends(self, value: float) -> bool:
        """Whether nothing is wanted after the pass that the host is told this of."""
        return value < self.least if self.stop is None else self.stop.ends(value)

    @property
    def found(self) -> tuple[int, int]:
        """Most nodes after the first pass, and after each pass that follows."""
        return (WIDTH, WIDTH * WIDTH) if self.tree else (1, 1)
