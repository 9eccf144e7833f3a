"""State of `auto` for a step and for a reply, and the number of steps without choosing."""

from dataclasses import dataclass, field, replace

from specchat.engine.decoding.draft import Copy
from specchat.engine.decoding.means import Mean
from specchat.engine.decoding.outcome import StepOutcome

CHOOSING, UNASKED = 0.01, 7
"""Largest share of the time spent choosing, and most steps at which an arm goes on without it."""
RESTING, RESTS = 0.02, 64
"""Largest share of plain decoding's time spent choosing if nothing is drafted, and most steps without it."""
BARREN, SELDOM = 4, 4
"""Choices in vain after which they become half as frequent, and the most times they get rarer."""


def rest_steps(barren: int, share: float) -> int:
    """Steps to rest after `barren` choices in vain; choosing takes this `share` of a plain step."""
    seldom = min(1 << (barren // BARREN), SELDOM)
    return min(int(seldom * share / RESTING), RESTS)


def unasked_steps(choosing_ms: float, plain: float) -> int:
    """Steps at which an arm goes on without choosing; `plain` is plain decoding's tokens per millisecond."""
    return min(max(0, int(choosing_ms * plain / CHOOSING)), UNASKED)


@dataclass
class ReplyState:
    """State of one reply.

    Attributes:
        end: length of the text after the last step.
        written: tokens of the reply.
        longest: largest draft limit so far.
        goes_on: steps left at which the arm goes on without choosing.
        chosen_for: text length and limit that `prepare` chose for.
        rejected: less than half of the last draft was accepted.
        resting: steps left of a rest.
        rested: steps of the rest that have passed.
    """

    end: int = 0
    written: int = 0
    longest: int = 0
    goes_on: int = 0
    chosen_for: tuple[int, int] | None = None
    rejected: bool = False
    resting: int = 0
    rested: int = 0


@dataclass
class ArmChoice:
    """The arm of a step, and the state it was chosen in.

    Attributes:
        arm: the strategy that drafts, up to `limit` tokens.
        throughput: expected tokens per millisecond.
        kind: the kind of text.
        copy: the proposal of the strategy `copier`.
        explores: the arm is explored.
        watched: a copy may end its draft.
        reads: its model has text to read first.
    """

    arm: str = "plain"
    limit: int = 0
    throughput: float = 0.0
    kind: int = 0
    copy: Copy = field(default_factory=Copy)
    copier: str = ""
    explores: bool = False
    watched: bool = False
    reads: bool = False


@dataclass
class BanditState:
    """State of `auto` beyond one reply.

    Attributes:
        choosing: milliseconds of choosing an arm.
        observing: milliseconds of observing its outcome.
        seen: steps measured by the last review of costs.
        refreshed: steps measured by the last refresh of all estimates.
        barren: choices in a row that found nothing to draft.
        step: number of steps.
        reviewed: costs were reviewed since the last choice.
        pressing: an arm is due to be explored again at once.
    """

    choosing: Mean = field(default_factory=Mean)
    observing: Mean = field(default_factory=Mean)
    seen: int = 0
    refreshed: int = 0
    barren: int = 0
    step: int = 0
    reviewed: bool = False
    pressing: bool = False

    @property
    def overhead_ms(self) -> float:
        """Milliseconds a step spends choosing and observing."""
        return self.choosing.value + self.observing.value

    def forget(self) -> None:
        """Forget this chat. Waits of arms go on: chats may be shorter than they are."""
        self.reviewed = self.pressing = False


def until(outcome: StepOutcome, drafted: int) -> StepOutcome:
    """Return the step as if its draft ended after `drafted` tokens."""
    return replace(
        outcome,
        drafts=outcome.drafts[:drafted],
        path=outcome.path[:drafted],
        confidence=outcome.confidence[:drafted],
        tested=min(outcome.tested, drafted),
        switch=0,
    )
