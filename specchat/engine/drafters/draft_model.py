"""A small model of the same family drafts token by token (Leviathan et al. 2023)."""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import Drafts, Role
from specchat.engine.decoding.means import Mean
from specchat.engine.decoding.stepped import Stepped


class DraftModelDrafter:
    """Samples with the target's options and the target's noise, so that both mostly choose alike."""

    name = "draft"
    role: Role = "draft"
    shortest = 2
    """Tokens of a text from which on it drafts: those that a device's first pass runs over."""

    def __init__(self, draft: CachedModel[Model], drafts: Drafts, ahead: bool) -> None:
        """`ahead`: the model runs on a device that works by itself."""
        self.draft = draft
        self.ahead = ahead
        self._drafts = drafts
        self._proposed = 0
        self._read = Mean()
        """Milliseconds of reading a token."""

    def begin(self, prompt: Sequence[int]) -> None:
        self.draft.rewind(prompt)

    def forget(self) -> None:
        self.draft.keep(0)

    def propose(self, text: Sequence[int], limit: int) -> str:
        limit = min(limit, self.draft.model.context - len(text))
        if limit <= 0 or len(text) < self.shortest:
            return self.name
        for _ in self.reading(text):
            pass
        self._proposed = len(text)
        self._make(limit)
        return self.name

    def reading(self, text: Sequence[int], clock: Callable[[], float] = perf_counter) -> Iterator[None]:
        """Let the model read what is `unread`, a block at each `next`, in any thread; what it costs tells `clock`."""
        unread, seconds = self.unread(text), 0.0
        try:
            while self.unread(text):
                started = clock()
                self.draft.fill(text[:-1])
                seconds += clock() - started
                yield
        finally:
            if (read := unread - self.unread(text)) > 0:
                self._read.add(1e3 * seconds / read)

    def unread(self, text: Sequence[int]) -> int:
        """Tokens of `text` that the model must read before it can draft; none where its context ends before.

        A device's first pass always runs over the last two tokens: after a full accept the cache lacks both.
        """
        return max(0, len(text) - 2 - len(self.draft.tokens)) if len(text) < self.draft.model.context else 0

    def behind(self, text: Sequence[int]) -> float:
        return self.unread(text) * self._read.value

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        if stepped.drafted:  # all but the last token that it drafted went through the draft itself
            self.draft.hold(text, min(self._proposed + stepped.drafted - 1, len(text) - 1))

    def _make(self, limit: int) -> None:
        self._drafts.chain(self.name, limit, self._one)

    def _one(self, node: int) -> None:
        self._drafts.run(self.role, node)
        self._drafts.pick(self.role, node)
