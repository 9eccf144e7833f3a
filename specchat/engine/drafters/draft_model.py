"""A small model of the same family drafts token by token (Leviathan et al. 2023)."""

from collections.abc import Sequence
from time import perf_counter

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.costs import Mean
from specchat.engine.decoding.draft import Drafts
from specchat.engine.decoding.stepped import Stepped


class DraftModelDrafter:
    """Samples with the target's options and the target's noise, so that both mostly choose alike."""

    name = "draft"

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
        # A device's first pass always runs over the last two tokens: after a full accept the cache lacks both.
        ready = len(text) - 2
        if limit <= 0 or ready < 0:
            return self.name
        if (unread := ready - len(self.draft.tokens)) > 0:
            started = perf_counter()
            while len(self.draft.tokens) < ready:
                self.draft.fill(text[:-1])
            self._read.add(1e3 * (perf_counter() - started) / unread)
        self._proposed = len(text)
        self._make(limit)
        return self.name

    def behind(self, text: Sequence[int]) -> float:
        return max(0, len(text) - 2 - len(self.draft.tokens)) * self._read.value

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        if stepped.drafted:  # all but the last token that it drafted went through the draft itself
            self.draft.hold(text, min(self._proposed + stepped.drafted - 1, len(text) - 1))

    def _make(self, limit: int) -> None:
        self._drafts.chain(self.name, limit, self._one)

    def _one(self, node: int) -> None:
        self._drafts.run("draft", node)
        self._drafts.pick("draft", node)
