"""State of `auto` as values: the choice of a step and what belongs to a reply; and how long choosing is left out."""

from dataclasses import dataclass, field, replace

from specchat.engine.decoding.draft import Copy
from specchat.engine.decoding.stepped import Stepped

WEIGHING, UNASKED = 0.01, 7
"""Share of the time that choosing an arm may take, and steps at which a chosen one goes on without that, at most; it
does where nothing could be copied."""
RESTING, RESTS = 0.02, 64
"""Share of plain's time that choosing may take where nothing is drafted, and steps that go by without it, at most."""
BARREN, SELDOM = 4, 4
"""Looks in vain after which they become half as frequent, and times that they get rarer by that, at most."""


def rest_steps(barren: int, share: float) -> int:
    """Steps to rest after so many looks in vain, where choosing takes such a `share` of a plain step."""
    seldom = min(1 << (barren // BARREN), SELDOM)
    return min(int(seldom * share / RESTING), RESTS)


def unasked_steps(weighing_ms: float, plain: float) -> int:
    """Steps at which an arm goes on unasked, where choosing takes so long and `plain` is tokens a millisecond."""
    return min(max(0, int(weighing_ms * plain / WEIGHING)), UNASKED)


@dataclass
class Reply:
    """What belongs to one reply.

    Attributes:
        end: where the text ended after the last step.
        written: its tokens.
        longest: the most tokens that a draft of it may have.
        goes_on: steps at which the arm goes on unasked.
        chosen_for: length of the text and limit of a step for which `prepare` chose.
        rejected: whether less than half of the last draft was accepted.
        resting: steps that are left of a rest.
        rested: those that went by since the last look.
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
class Choice:
    """The arm of a step, and what was known as it was chosen.

    Attributes:
        arm: the strategy that drafts, at most `limit` tokens.
        throughput: tokens a millisecond that are expected.
        kind: the kind of text.
        copy: what can be copied, by the strategy `copier`.
        explores: whether the arm is explored.
        watched: whether a copy may end its draft.
        reads: whether its model had to read something first.
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


def until(stepped: Stepped, drafted: int) -> Stepped:
    """The step as if its draft had ended there."""
    return replace(
        stepped,
        drafts=stepped.drafts[:drafted],
        path=stepped.path[:drafted],
        confidence=stepped.confidence[:drafted],
        tested=min(stepped.tested, drafted),
        switch=0,
    )
