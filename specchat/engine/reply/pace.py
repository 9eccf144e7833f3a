"""The choice of replies that decode in one pass: all that go at least as fast so as in turns."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

PREFERRED = 2
"""Turns of an app's chat for each one of a reply to other programs."""
STEPS, KEPT = 4, 0.95
"""Steps alone by which a reply's pace is known, and how much each later one leaves of the weight of those before it."""
STALE = 512
"""Tokens in company after which the pace alone is measured anew: drafts may have come to pay."""
STAYS = 1.15
"""How much slower than in turns a reply in company may go before it leaves: measurements scatter."""


class ReplyPace:
    """How fast a reply goes alone, by its own strategy.

    Attributes:
        share: of turns, against that of other replies.
        together: True while it decodes in company.
        refused: True if it has to stay alone.
    """

    def __init__(self, share: int) -> None:
        self.share, self.together, self.refused = share, False, False
        self.forget()

    def forget(self) -> None:
        """Measure anew."""
        self._steps, self._since = 0, 0
        self._ms = self._tokens = 0.0

    def add(self, ms: float, tokens: int, drafts: bool) -> None:
        """Count a step; `drafts` if the strategy may draft."""
        if self.together:
            self._since += tokens if drafts else 0
            return
        if self._since:
            self.forget()
        self._steps += 1
        self._ms, self._tokens = KEPT * self._ms + ms, KEPT * self._tokens + tokens

    @property
    def known(self) -> bool:
        """True if the pace alone is known well enough."""
        return self._steps >= STEPS and self._since < STALE

    @property
    def turn_ms(self) -> float:
        """Milliseconds a token, by its share of turns: in a turn for each reply it takes as often as shares say."""
        return self._ms / max(self._tokens, 1.0) / self.share * (STAYS if self.together else 1.0)


class Paced(Protocol):
    """A reply with a pace."""

    pace: ReplyPace


R = TypeVar("R", bound=Paced)


def worthwhile(replies: Iterable[R], pass_ms: Callable[[int], float]) -> list[R]:
    """The most of `replies` of which none goes slower in common passes than in turns; none if they are not two.

    `pass_ms` has the milliseconds of a step of so many.
    """
    slowest = [reply for reply in replies if reply.pace.known and not reply.pace.refused]
    slowest.sort(key=lambda reply: reply.pace.turn_ms, reverse=True)
    while len(slowest) > 1:
        shares = sum(reply.pace.share for reply in slowest)
        if pass_ms(len(slowest)) <= slowest[-1].pace.turn_ms * shares:
            return slowest
        slowest.pop()
    return []
