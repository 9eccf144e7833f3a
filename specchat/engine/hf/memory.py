"""What a model remembers of the text it has read, and how that goes back to an earlier place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache

from specchat.engine.hf.entries import copied, roomy, running

REACH = 24
"""Tokens that a step takes back at most: the longest draft, with some to spare."""


class Memory(Protocol):
    """What is handed to a network's passes."""

    cache: Any
    """Handed to each pass, and replaced by what the pass gives back; None for a network to begin anew."""

    def back(self, held: int, start: int, rows: int) -> int:
        """Go back from `held` tokens to `start`, or as little before it as can be done, for a pass of `rows`.

        Returns:
            how many tokens are held then.
        """
        ...

    def begin(self, held: int) -> None:
        """A pass begins with `held` tokens held."""
        ...

    def forget(self) -> None:
        """Hold nothing, whatever a pass that failed left behind."""
        ...

    def size(self, context: int) -> int:
        """Bytes that `context` tokens take, once something was read."""
        ...


@dataclass(frozen=True)
class SavedStates:
    """The running states after `length` tokens."""

    length: int
    states: list[dict[str, Any]]


class Recorded:
    """A cache that goes back: entries of attention are cut, running states are as they were when a pass began.

    To a place between two passes a running state is brought by reading the tokens again that led there.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        self._config = config
        self.forget()

    def forget(self) -> None:
        self.cache = DynamicCache(config=self._config)
        self._attending = roomy(self.cache)
        self._running = running(self.cache)
        self._marks = [self._mark(0)]
        self.turn = 0
        """A place that is kept for long: the end of what was last written."""

    @property
    def runs(self) -> bool:
        """Whether there is a running state."""
        return bool(self._running)

    def back(self, held: int, start: int, rows: int) -> int:
        if start == held:
            return held
        if self._running:
            while self._marks[-1].length > start:
                self._marks.pop()
            mark = self._marks[-1]
            for layer, state in zip(self._running, mark.states, strict=True):
                layer.__dict__.clear()
                layer.__dict__.update(copied(state))
            start = mark.length
        for entries in self._attending:
            entries.cut(start)
        return start

    def begin(self, held: int) -> None:
        if not self._running or self._marks[-1].length == held:
            return
        near = [mark for mark in self._marks if mark.length > held - REACH]
        far = [mark for mark in self._marks if mark.length <= held - REACH]
        kept = [mark for mark in far if mark.length in (0, self.turn) or mark is far[-1]]
        self._marks = [*kept, *near, self._mark(held)]

    def _mark(self, length: int) -> SavedStates:
        return SavedStates(length, [copied(layer.__dict__) for layer in self._running])

    def size(self, context: int) -> int:
        stores = [store for layer in self._attending for store in (layer.keys, layer.values) if store is not None]
        entries = sum(store.shape[1] * store.shape[3] * store.element_size() for store in stores)
        return entries * context


class Alone:
    """What a network keeps by itself: it goes back only to the beginning, and goes on by one token a pass."""

    turn = 0

    def __init__(self, fresh: Callable[[], Any]) -> None:
        """`fresh` makes what the first pass is handed."""
        self._fresh = fresh
        self.cache = fresh()

    def back(self, held: int, start: int, rows: int) -> int:
        if start == held and rows == 1:
            return held
        self.cache = self._fresh()
        return 0

    def begin(self, held: int) -> None:
        pass

    def forget(self) -> None:
        self.cache = self._fresh()

    def size(self, context: int) -> int:
        return 0
