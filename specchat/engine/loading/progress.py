"""Progress of loading a pair, as it is shown."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from specchat.engine.cpu import compiled
from specchat.engine.memory.plan import Plan
from specchat.engine.protocol.events import Loading

SHOWN_PART = 0.01
"""Least progress that is told anew."""

Progress = Callable[[Loading], None]


class Bar:
    """Progress that never goes back, in steps of at least SHOWN_PART."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._words, self._done = progress, "", 0.1

    def show(self, words: str, part: float) -> None:
        if words != self._words or part >= self._done + SHOWN_PART:
            self._words, self._done = words, max(part, self._done)
            self._progress(Loading(words, self._done))

    def compiling(self, plan: Plan) -> AbstractContextManager[None]:
        """Show the compiling of the functions that `plan` needs."""
        if not any(model.compiled for model in plan.models):
            return nullcontext()
        words = "compiling for this processor (later starts skip this)"
        return compiled.reporting(lambda share: self.show(words, 0.1 + 0.4 * share))
