"""The choice of replies that decode in one pass: all that go at least as fast so as in turns."""

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple, Protocol, TypeVar

from specchat.engine.decoding.outcome import StepOutcome

PREFERRED = 2
"""Turns of an app's chat for each one of a reply to other programs."""
STEPS, KEPT = 4, 0.95
"""Steps alone by which a reply's pace is known, and how much each later one leaves of the weight of those before it."""
STALE = 512
"""Tokens in company after which the pace alone is measured anew: drafts may have come to pay."""
LASTS = 16
"""Steps that a reply must have left to join: its text in the caches is copied first."""
STAYS = 1.15
"""How much slower than in turns a reply in company may go before it leaves: measurements scatter."""


class Sums(NamedTuple):
    """Steps by which drafts are judged, of which later ones weigh more, and what they added, drafted and took."""

    steps: float = 0.0
    tokens: float = 0.0
    drafted: float = 0.0
    draft_ms: float = 0.0

    def added(self, *step: float) -> "Sums":
        """These and one more step."""
        return Sums(*(KEPT * old + new for old, new in zip(self, step, strict=True)))


class Joint(NamedTuple):
    """A reply in a common pass: milliseconds more for its drafts, if they pay there, and tokens a step."""

    drafts: bool
    more_ms: float
    tokens: float


class ReplyPace:
    """How fast a reply goes alone, by its own strategy, and what its drafts win and cost.

    Attributes:
        share: of turns, against that of other replies.
        together: True while it decodes in company.
        able, drafts: True if its strategy can draft there, and if it does.
        refused: True if it has to stay alone.
        left: tokens that it may still write.
    """

    def __init__(self, share: int) -> None:
        self.share, self.together, self.refused, self.able, self.drafts = share, False, False, False, False
        self.left = inf
        self.forget()

    def forget(self) -> None:
        """Measure anew."""
        self._steps, self._since = 0, 0
        self._ms = self._tokens = 0.0
        self._drafted = Sums()

    def add(self, ms: float, outcome: StepOutcome, tokens: int, drafts: bool) -> None:
        """Count a step of `ms` that added `tokens`; `drafts` if the strategy may draft."""
        if not self.together and self._since:
            self.forget()
        if self.drafts or not self.together:
            self._drafted = self._drafted.added(1.0, tokens, outcome.drafted, outcome.draft_ms)
        if self.together:
            self._since += tokens if drafts else 0
            return
        self._steps += 1
        self._ms, self._tokens = KEPT * self._ms + ms, KEPT * self._tokens + tokens

    @property
    def known(self) -> bool:
        """True if the pace alone is known well enough."""
        return self._steps >= STEPS and self._since < STALE

    @property
    def lasts(self) -> bool:
        """True if enough steps are left for company."""
        return self.together or self.left * self._drafted.steps >= LASTS * self._drafted.tokens

    @property
    def turn_ms(self) -> float:
        """Milliseconds a token, by its share of turns: in a turn for each reply it takes as often as shares say."""
        return self._ms / max(self._tokens, 1.0) / self.share * (STAYS if self.together else 1.0)

    def joint(self, plain_ms: float, row_ms: float, drafts: bool) -> Joint:
        """Its part where `plain_ms` of a common step fall to a plain reply, and `row_ms` to a drafted token.

        It drafts where that makes all replies together faster, and with `drafts` in any case.
        """
        steps, tokens, drafted, draft_ms = self._drafted
        more_ms = (drafted * row_ms + draft_ms) / steps
        if self.able and (drafts or (plain_ms + more_ms) * steps <= plain_ms * tokens):
            return Joint(True, more_ms, tokens / steps)
        return Joint(False, 0.0, 1.0)


class Paced(Protocol):
    """A reply with a pace."""

    pace: ReplyPace


R = TypeVar("R", bound=Paced)


def worthwhile(replies: Iterable[R], costs: Callable[[int], tuple[float, float]]) -> list[R]:
    """The most of `replies` of which none goes slower in common passes than in turns; none if they are not two.

    `costs` has the milliseconds of a plain step of so many, and those of a drafted token in it.
    """
    slowest, drafting = (
        [one for one in replies if one.pace.known and one.pace.lasts and not one.pace.refused],
        list[R](),
    )
    while len(slowest) > 1:
        plain_ms, row_ms = costs(len(slowest))
        joint = [reply.pace.joint(plain_ms / len(slowest), row_ms, reply in drafting) for reply in slowest]
        step_ms, shares = plain_ms + sum(one.more_ms for one in joint), sum(reply.pace.share for reply in slowest)
        in_turns = [reply.pace.turn_ms * shares * one.tokens for reply, one in zip(slowest, joint, strict=True)]
        if step_ms <= min(in_turns):
            for reply, one in zip(slowest, joint, strict=True):
                reply.pace.drafts = one.drafts
            return slowest
        first = in_turns.index(min(in_turns))
        if slowest[first].pace.able and not joint[first].drafts:
            drafting.append(slowest[first])
        else:
            del slowest[first]
    return []
