"""What can be copied after a model's first tokens: a text often repeats what it was not yet at the start of.

Each token that a model drafts may be the one with which the end of the text occurred before. From there a copy costs no
pass of the model. It takes the model's place where the tokens that it is expected to bring, at what its rows cost, are
more than those of a model that goes on.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from specchat.engine.decoding.draft import Copy
from specchat.engine.decoding.pace import Copies

After = Callable[[Sequence[int], Sequence[int], int], Copy]
"""Up to so many tokens that may follow a text and what was drafted after it."""


@runtime_checkable
class Continues(Protocol):
    """A copier that can be asked what follows a text and what was drafted after it."""

    def after(self, text: Sequence[int], drafted: Sequence[int], limit: int) -> Copy:
        """Up to `limit` tokens that followed the end of `text` and `drafted` before; `text` was proposed for."""
        ...


SHORTEST = 4
"""Tokens that must be alike: a model knows better what follows fewer."""


class CopyOn:
    """Watches one draft of a model at a time."""

    def __init__(self, after: After, copies: Callable[[int], Copies]) -> None:
        """`copies` knows how far copies after a model's tokens come, by how many tokens were alike."""
        self._copies_after = after
        self._copies = copies
        self._found, self._after = Copy(), 0
        self.taken = False
        """Whether the last draft ends with a copy."""

    def start(
        self,
        text: Sequence[int],
        limit: int,
        rate: float,
        goes_on: Callable[[], float],
        checks: Sequence[float],
        draft_ms: float,
    ) -> None:
        """A model drafts after `text`, up to `limit` tokens with what is copied.

        Args:
            rate: tokens a millisecond that steps bring: what time is worth.
            goes_on: tells the chance that a further token of the model stays.
            checks: milliseconds of checking 0, 1, ... rows.
            draft_ms: milliseconds of a token of the model.
        """
        self._text, self._limit = text, limit
        self._rate, self._goes_on, self._checks, self._draft_ms = rate, goes_on, checks, draft_ms
        self._found, self._after, self.taken = Copy(), 0, False

    def copy(self, drafted: Sequence[int], stay: Callable[[], float]) -> Sequence[int]:
        """What to copy after these tokens of the model; `stay` tells the chance that all of them stay.

        Nothing where the model may go on.

        The first copy that was found is judged, whether it was taken or not.
        """
        made = len(drafted)
        if made >= self._limit:
            return ()
        found = self._copies_after(self._text, drafted, self._limit - made)
        if not found.tokens or found.matched < SHORTEST:
            return ()
        if not self._found.tokens:
            self._found, self._after = found, made
        checks, chance = self._checks[1 + made :], stay()
        gain, length = self._copies(found.matched).gain(len(found.tokens), chance, self._rate, checks)
        if gain <= max(0.0, self._model_gain(len(found.tokens), chance, checks)):
            return ()
        self._found, self._after, self.taken = found, made, True
        return found.tokens[:length]

    def _model_gain(self, longest: int, chance: float, checks: Sequence[float]) -> float:
        """Tokens that a model which goes on brings at best, less those that its time would bring otherwise."""
        tokens, most, stays = 0.0, 0.0, self._goes_on()
        for length in range(1, longest + 1):
            chance *= stays
            tokens += chance
            most = max(most, tokens - self._rate * (length * self._draft_ms + checks[length] - checks[0]))
        return most

    def judge(self, new: Sequence[int]) -> None:
        """The text went on with `new`; where a token of the model was refused these end before the copy."""
        if self._found.tokens:
            self._copies(self._found.matched).judged(self._found.outcome(new[self._after :]))
