"""Copies as arms: how many of their tokens are accepted, and where a copy may end a model's draft.

A text often repeats what it was not yet at the start of: each token that a model drafts may be the one with which the
end of the text occurred before. From there a copy costs no pass of the model. It takes the model's place where the
tokens that it is expected to bring, at what its rows cost, are more than those of a model that goes on.
"""

from collections.abc import Callable, Sequence

from specchat.engine.bandit.averages import KEPT_LONG, NEW, Average
from specchat.engine.decoding.draft import Copy
from specchat.engine.strategy import MAX_DRAFT_LENGTH

FIRST = (0.4, 0.4, 0.7, 0.9, 0.95)
LATER = (0.8, 0.8, 0.85, 0.95, 0.97)
"""Acceptance rates assumed by kind of text: of the first token of a copy, and of each that follows an accepted one."""
SHORTEST = 4
"""Tokens that must be alike for a copy after a model's: a model knows better what follows fewer."""

After = Callable[[Sequence[int], Sequence[int], int], Copy]
"""Up to so many tokens that may follow a text and what was drafted after it: the `after` of copiers that can tell."""


class Copies:
    """Acceptance of copies: of first tokens, and of tokens after one that was accepted."""

    def __init__(self, first: float, later: float) -> None:
        """Both rates as assumed."""
        self._first = Average(Average(first, KEPT_LONG))
        self._later = Average(Average(later, KEPT_LONG))

    def forget(self) -> None:
        """Know of no text in particular."""
        self._first.forget()
        self._later.forget()

    def judged(self, outcome: Sequence[bool | None]) -> None:
        """Count one more copy, by whether its tokens were right, None where that is not known."""
        if not outcome or outcome[0] is None:
            return
        self._first.add(float(outcome[0]))
        if outcome[0]:
            known = [right for right in outcome[1:] if right is not None]
            right = sum(known)
            tested = right + (right < len(known))
            if tested:
                self._later.add(right / tested, weight=tested)

    def best(self, longest: int, verify_ms: Sequence[float], other_ms: float) -> tuple[float, int]:
        """The highest expected throughput of lengths from 1 to `longest`, in tokens a millisecond, and its length.

        `verify_ms` are the milliseconds of verifying 0, 1, ... rows.
        """
        accepted, later = self._first.value, self._later.value
        tokens, most, best = 1.0, 0.0, 1
        for length in range(1, min(longest, MAX_DRAFT_LENGTH) + 1):
            tokens += accepted
            accepted *= later
            throughput = tokens / (verify_ms[length + 1] + other_ms)
            if throughput > most:
                most, best = throughput, length
        return most, best

    def gain(self, longest: int, chance: float, rate: float, verify_ms: Sequence[float]) -> tuple[float, int]:
        """The most tokens that a length from 1 to `longest` brings after tokens accepted with `chance`, and it.

        Those that the time of its rows would bring at `rate` tokens a millisecond are taken off; `verify_ms` are the
        milliseconds of verifying without the copy, with one token of it, ...
        """
        accepted, later = chance * self._first.value, self._later.value
        tokens, most, best = 0.0, float("-inf"), 1
        for length in range(1, longest + 1):
            tokens += accepted
            accepted *= later
            gain = tokens - rate * (verify_ms[length] - verify_ms[0])
            if gain > most:
                most, best = gain, length
        return most, best


def copies_by_kind() -> list[Copies]:
    """Acceptance of copies by kind of text."""
    return [Copies(*assumed) for assumed in zip(FIRST + FIRST[:NEW], LATER + LATER[:NEW], strict=True)]


def model_gain(
    longest: int, chance: float, goes_on: float, rate: float, draft_ms: float, verify_ms: Sequence[float]
) -> float:
    """Tokens that a model which goes on brings at best, less those that its time would bring otherwise."""
    tokens, most = 0.0, 0.0
    for length in range(1, longest + 1):
        chance *= goes_on
        tokens += chance
        most = max(most, tokens - rate * (length * draft_ms + verify_ms[length] - verify_ms[0]))
    return most


class CopyOn:
    """Watches one draft of a model at a time."""

    def __init__(self, after: After, copies: Callable[[int], Copies]) -> None:
        """`copies` knows the acceptance of copies after a model's tokens, by how many tokens were alike."""
        self._copies_after, self._copies = after, copies
        self._found, self._after = Copy(), 0
        self.taken = False
        """Whether the last draft ends with a copy."""

    def start(
        self,
        text: Sequence[int],
        limit: int,
        rate: float,
        goes_on: Callable[[], float],
        verify_ms: Sequence[float],
        draft_ms: float,
    ) -> None:
        """A model drafts after `text`, up to `limit` tokens with what is copied.

        Args:
            rate: tokens a millisecond that steps bring: what time is worth.
            goes_on: tells the probability that a further token of the model is accepted.
            verify_ms: milliseconds of verifying 0, 1, ... rows.
            draft_ms: milliseconds of a token of the model.
        """
        self._text, self._limit = text, limit
        self._rate, self._goes_on, self._verify_ms, self._draft_ms = rate, goes_on, verify_ms, draft_ms
        self._found, self._after, self.taken = Copy(), 0, False

    def copy(self, drafted: Sequence[int], all_accepted: Callable[[], float]) -> Sequence[int]:
        """Tokens to copy after these of the model, none where the model may go on.

        `all_accepted` tells the probability that all of these are. The first copy that was found is judged, whether it
        was taken or not.
        """
        made = len(drafted)
        if made >= self._limit:
            return ()
        found = self._copies_after(self._text, drafted, self._limit - made)
        if not found.tokens or found.matched < SHORTEST:
            return ()
        if not self._found.tokens:
            self._found, self._after = found, made
        verify_ms, chance, longest = self._verify_ms[1 + made :], all_accepted(), len(found.tokens)
        gain, length = self._copies(found.matched).gain(longest, chance, self._rate, verify_ms)
        if gain <= max(0.0, model_gain(longest, chance, self._goes_on(), self._rate, self._draft_ms, verify_ms)):
            return ()
        self._found, self._after, self.taken = found, made, True
        return found.tokens[:length]

    def judge(self, new: Sequence[int]) -> None:
        """The text went on with `new`; where a token of the model was rejected these end before the copy."""
        if self._found.tokens:
            self._copies(self._found.matched).judged(self._found.outcome(new[self._after :]))
