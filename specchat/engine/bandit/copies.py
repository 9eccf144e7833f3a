"""Copies as arms: acceptance of copied tokens, and copies that end a model's draft.

A token drafted by a model may complete a match with an earlier part of the text. From there a copy costs no pass of the
model. It replaces the model if its expected tokens, less the cost of verifying them, exceed those of drafting on.
"""

from collections.abc import Callable, Sequence

from specchat.engine.bandit.averages import KEPT_LONG, NEW, Average, text_kind
from specchat.engine.bandit.choice import ArmChoice
from specchat.engine.decoding.draft import Copier, Copy, Follow
from specchat.engine.drafters.parts import Fences
from specchat.engine.strategy import MAX_DRAFT_LENGTH

FIRST = (0.4, 0.4, 0.7, 0.9, 0.95)
LATER = (0.8, 0.8, 0.85, 0.95, 0.97)
"""Assumed acceptance rates by kind of text: of the first token of a copy, and of one after an accepted token."""
SHORTEST = 4
"""Shortest match for a copy after a model's tokens: after a shorter one the model drafts better."""
LONG = 8
"""Match length in tokens at which no further copier is tried."""

After = Callable[[Sequence[int], Sequence[int], int], Copy]
"""The `after` of copiers: given text, drafted tokens and a limit, copies tokens that may follow."""


class Copies:
    """Acceptance rates of copied tokens: of the first, and of those after an accepted one."""

    def __init__(self, first: float, later: float) -> None:
        """Start from these assumed rates."""
        self._first = Average(Average(first, KEPT_LONG))
        self._later = Average(Average(later, KEPT_LONG))

    def forget(self) -> None:
        """Forget counts of this chat; wider averages are kept."""
        self._first.forget()
        self._later.forget()

    def add(self, right: Sequence[bool | None]) -> None:
        """Count one more copy: per token, True if it was right, None if unknown."""
        if not right or right[0] is None:
            return
        self._first.add(float(right[0]))
        if right[0]:
            known = [one for one in right[1:] if one is not None]
            accepted = sum(known)
            tested = accepted + (accepted < len(known))
            if tested:
                self._later.add(accepted / tested, weight=tested)

    def best(self, longest: int, verify_ms: Sequence[float], other_ms: float) -> tuple[float, int]:
        """Return the highest expected throughput of lengths 1 to `longest`, in tokens per millisecond, and its length.

        `verify_ms` are the milliseconds of verifying 0, 1, ... tokens.
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
        """Return the highest net gain in tokens of lengths 1 to `longest`, and its length.

        All tokens before the copy are accepted with probability `chance`. The gain is net of the tokens that the
        verifying time would bring at `rate` tokens per millisecond. `verify_ms` are the milliseconds of verifying
        without the copy, with one token of it, ...
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
    """Create the acceptance rates of copies by kind of text."""
    return [Copies(*assumed) for assumed in zip(FIRST + FIRST[:NEW], LATER + LATER[:NEW], strict=True)]


def model_gain(
    longest: int, chance: float, goes_on: float, rate: float, draft_ms: float, verify_ms: Sequence[float]
) -> float:
    """Return the highest net gain in tokens if the model drafts on, as in `Copies.gain`."""
    tokens, most = 0.0, 0.0
    for length in range(1, longest + 1):
        chance *= goes_on
        tokens += chance
        most = max(most, tokens - rate * (length * draft_ms + verify_ms[length] - verify_ms[0]))
    return most


class CopyOn:
    """Observer of one model draft at a time, which a copy may end."""

    def __init__(self, after: After, copies: Callable[[int], Copies]) -> None:
        """Create an observer; `copies` maps a match length to the acceptance of copies after a model's tokens."""
        self._copies_after, self._copies = after, copies
        self._found, self._after = Copy(), 0
        self.taken = False
        """True if the last draft ends with a copy."""

    def start(
        self,
        token_ids: Sequence[int],
        limit: int,
        rate: float,
        goes_on: Callable[[], float],
        verify_ms: Sequence[float],
        draft_ms: float,
    ) -> None:
        """Begin a model's draft after `token_ids`, of up to `limit` tokens with the copied ones.

        Args:
            rate: tokens per millisecond of steps.
            goes_on: returns the probability that a further token of the model is accepted.
            verify_ms: milliseconds of verifying 0, 1, ... tokens.
            draft_ms: milliseconds per drafted token.
        """
        self._text, self._limit = token_ids, limit
        self._rate, self._goes_on, self._verify_ms, self._draft_ms = rate, goes_on, verify_ms, draft_ms
        self._found, self._after, self.taken = Copy(), 0, False

    def copy(self, drafted: Sequence[int], all_accepted: Callable[[], float]) -> Sequence[int]:
        """Return tokens to copy after those `drafted` by the model, none if the model is to draft on.

        `all_accepted` returns the probability that all of these are accepted. The copy taken is judged later, else the
        first one found.
        """
        count = len(drafted)
        if count >= self._limit:
            return ()
        found = self._copies_after(self._text, drafted, self._limit - count)
        if not found.tokens or found.matched < SHORTEST:
            return ()
        if not self._found.tokens:
            self._found, self._after = found, count
        verify_ms, chance, longest = self._verify_ms[1 + count :], all_accepted(), len(found.tokens)
        gain, length = self._copies(found.matched).gain(longest, chance, self._rate, verify_ms)
        if gain <= max(0.0, model_gain(longest, chance, self._goes_on(), self._rate, self._draft_ms, verify_ms)):
            return ()
        self._found, self._after, self.taken = found, count, True
        return found.tokens[:length]

    def observe(self, new: Sequence[int]) -> None:
        """Count the copy against `new`, the tokens added; they end before it if a model's token was rejected."""
        if self._found.tokens:
            self._copies(self._found.matched).add(self._found.matches(new[self._after :]))


class CopyArms:
    """The copiers of `auto`, and the acceptance of their copies by kind of text."""

    def __init__(self, copiers: Sequence[Copier], after: tuple[str, After] | None, fences: Fences) -> None:
        """See `AutoDrafter`."""
        self._copiers, self._fences = copiers, fences
        self._accepted = {copier.name: copies_by_kind() for copier in copiers}
        self._accepted_after = copies_by_kind()
        """Acceptance of copies after a model's tokens."""
        self.copy_on: CopyOn | None = None
        self.follow: Follow | None = None
        if after is not None:
            self.copy_on = CopyOn(after[1], lambda matched: self._accepted_after[text_kind(matched, fences.code)])
            self.follow = Follow(after[0], "auto", self.copy_on.copy)

    def forget(self) -> None:
        """Forget counts of this chat; wider averages are kept."""
        for copies in (*self._accepted.values(), self._accepted_after):
            for of_kind in copies:
                of_kind.forget()

    def find(self, token_ids: Sequence[int], limit: int, choice: ArmChoice) -> None:
        """Enter into `choice` the copy with the longest match, by one copier after another."""
        for copier in self._copiers:
            copy = copier.propose(token_ids, limit)
            if copy.tokens and copy.matched >= choice.copy.matched:
                choice.copy, choice.copier, choice.kind = copy, copier.name, text_kind(copy.matched, self._fences.code)
            if copy.matched >= LONG:
                break

    def best(self, choice: ArmChoice, verify_ms: Sequence[float], other_ms: float) -> tuple[float, int]:
        """Return `Copies.best` for the copy of `choice`."""
        return self._accepted[choice.copier][choice.kind].best(len(choice.copy.tokens), verify_ms, other_ms)

    def observe(self, choice: ArmChoice, new: Sequence[int]) -> None:
        """Count the copies of a step against `new`, the tokens added."""
        if choice.copier:
            self._accepted[choice.copier][choice.kind].add(choice.copy.matches(new))
        if self.copy_on is not None and choice.watched:
            self.copy_on.observe(new)
