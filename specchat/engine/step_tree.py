"""A step's drafts as a tree: what each follows, and at which place it stands. A chain is the tree with one branch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specchat.engine.api import Drafted

PENDING = -1
"""What the first drafts follow: the token that was pending when the step began."""


@dataclass(frozen=True, slots=True)
class StepTree:
    """Parents stand before their children: `parents[i] < i`. Places count from 1, which follows the pending token."""

    parents: tuple[int, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, drafts: Sequence[Drafted]) -> "StepTree":
        """The tree of `Step.drafts`.

        Raises:
            ValueError: a draft follows none that stands before it.
        """
        parents, places = [], []
        for number, draft in enumerate(drafts):
            parent = number - 1 if draft.parent is None else draft.parent
            if not PENDING <= parent < number:
                raise ValueError(f"draft {number} follows {parent}, which is none before it")
            parents.append(parent)
            places.append(1 if parent == PENDING else places[parent] + 1)
        return cls(tuple(parents), tuple(places))

    def after(self, draft: int) -> list[int]:
        """The candidates for the place behind `draft`, or behind the pending token, in the order of the step."""
        return [number for number, parent in enumerate(self.parents) if parent == draft]

    def path(self, draft: int) -> Iterator[int]:
        """`draft` and what leads to it, the last first."""
        while draft != PENDING:
            yield draft
            draft = self.parents[draft]


def likeliest(drafts: Sequence[Drafted], among: Sequence[int]) -> int:
    """The draft of the highest probability, the first of equal ones; those that tell none count as the least likely."""
    return max(among, key=lambda number: -1.0 if (chance := drafts[number].probability) is None else chance)


def branched(drafts: Sequence[Drafted]) -> bool:
    """Whether there is more than one branch."""
    return any(draft.parent not in (None, number - 1) for number, draft in enumerate(drafts))
