"""How slow the machine is beside what it was: one that gets busy, hot or short of power slows all steps alike.

So what one kind of step takes tells of all others, also of those that are not taken at the time.
"""

SHARE = 0.3
"""Share of a step's departure from what was expected that counts at once."""
MOST = 2.0
"""A step counts as at most so many times what was expected, or as little."""


class Slowness:
    """1 at first. What is measured is divided by `value`, what is known multiplied, and so all of it is of now."""

    def __init__(self) -> None:
        self.value = 1.0

    def seen(self, ms: float, known: float) -> float:
        """A step took `ms` that was `known` to take so much where the machine is not slow; gives the time to learn.

        Whoever learns must learn from the same time, little at once: were they at odds, both would drift.
        """
        ms = min(max(ms / self.value, known / MOST), known * MOST)
        self.value *= (ms / known) ** SHARE
        return ms
