"""How slow the machine is beside what it was: one that gets busy, hot or short of power slows all steps alike.

So what one kind of step takes tells of all others, also of those that are not taken at the time.
"""

SHARE = 0.3
"""Share of a step's departure from what was expected that counts at once."""
MOST = 2.0
"""A step counts as at most so many times what was expected, or as little."""
FEW = 2
"""Rows of a check that takes about as long as a plain step."""


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


class Plain:
    """How slow plain steps are beside the checks of drafts, told by those of few rows, which take as long.

    What makes a machine slow need not slow them alike: another program on a core of theirs holds up threads that share
    a pass.
    """

    def __init__(self) -> None:
        self.part = 1.0
        """A plain step is so many times as slow as the others."""
        self._seen = False

    def add(self, rows: int, slow: float, others: float) -> None:
        """A check of so many rows took `slow` times what it usually takes, those before it `others` times."""
        if rows <= FEW:
            part = min(max(slow / others, 1 / MOST), MOST)
            self.part *= (part / self.part) ** (SHARE if self._seen else 1)
            self._seen = True
