"""Drafts by a model on the host for a target on a device, made while the device verifies the ones before.

The idea is PEARL's (Liu et al. 2024): the draft model does not wait for the verdict. It goes on as if all of its draft
stayed and the target's own token after it were the one that it would pick itself. If so, the next draft is begun
already; if not, what was made is dropped.
"""

from collections.abc import Callable, Collection, Sequence
from math import prod

from specchat.engine.device.handed import HandedDrafts
from specchat.engine.options import Acceptance, Sampling

LIKELY = 0.5
"""What is drafted must be so probable for more to follow: a pass is saved later then, or delays the verdict by half of
itself on average."""


class DraftsOnHost(HandedDrafts):
    """Drafts by the model "draft"."""

    def begin(self, sampling: Sampling, prompt: Sequence[int], eos: Collection[int] = ()) -> None:
        self._ready: list[tuple[int, float]] = []
        """Tokens that follow the text, and their probabilities: the next draft, as far as it is made."""
        super().begin(sampling, prompt, eos)

    def start(self, acceptance: Acceptance) -> None:
        super().start(acceptance)
        self._chain: tuple[int, Callable[[int], None]] | None = None
        self._following: list[tuple[int, float]] = []
        """Tokens that follow the text and the draft."""

    def chain(self, name: str, limit: int, one: Callable[[int], None], at_once: bool = False) -> None:
        ready, self._ready = self._ready, []

        def made(node: int) -> None:
            if node >= len(ready):
                one(node)
                return
            token, probability = ready[node]
            self.draft.tokens.append(token)
            self.draft.confidence.append(probability)
            self.history.push(token)

        super().chain(name, limit, made, at_once)
        self._chain = limit, one

    def go_on(self, done: Callable[[], bool]) -> None:
        """Draft on while the device verifies a chain, until that is `done` or what is drafted is unlikely to stay.

        How much that is depends on time, so only where no text depends on a draft.
        """
        if self._chain is None or not self._timed:
            return
        (limit, one), draft = self._chain, self.draft
        drafted, room = len(draft.tokens), self._models["draft"].model.context - len(self.text)
        for token in draft.tokens:
            self.history.push(token)
        try:
            for node in range(drafted, min(drafted + 1 + limit, room)):
                if prod(draft.confidence) < LIKELY or done():
                    break
                one(node)
        finally:
            for token in draft.tokens:
                self.history.pop(token)
        self._following = list(zip(draft.tokens[drafted:], draft.confidence[drafted:], strict=True))
        del draft.tokens[drafted:], draft.confidence[drafted:]

    def added(self, tokens: Sequence[int], path: Sequence[int]) -> None:
        guessed = [*self.draft.tokens, *(token for token, _ in self._following[:1])]
        self._ready = self._following[1:] if list(tokens) == guessed else []
        super().added(tokens, path)

    def place(self, text: Sequence[int]) -> None:
        self._ready = []
        super().place(text)
