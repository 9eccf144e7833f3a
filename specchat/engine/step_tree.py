"""A step's drafts as a tree: what each follows, and at which place it stands. A chain is the tree with one branch."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.api import Drafted, Step

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
        parents: list[int] = []
        places: list[int] = []
        for number, draft in enumerate(drafts):
            parent = number - 1 if draft.parent is None else draft.parent
            if not PENDING <= parent < number:
                raise ValueError(f"draft {number} follows {parent}, which is none before it")
            parents.append(parent)
            places.append(1 if parent == PENDING else places[parent] + 1)
        return cls(tuple(parents), tuple(places))

    def candidates(self) -> dict[int, list[int]]:
        """The drafts that follow a draft, or PENDING, in the order of the step; leaves are left out."""
        found: dict[int, list[int]] = {}
        for number, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(number)
        return found


def likeliest(drafts: Sequence[Drafted], among: Sequence[int]) -> int:
    """The draft of the highest probability, the first of equal ones; those that tell none count as the least likely."""
    return max(among, key=lambda number: -1.0 if (chance := drafts[number].probability) is None else chance)


def ranks(step: Step) -> list[int]:
    """When the kept drafts of a step would have been drafted, from 1, the likeliest paths of its tree first.

    So drafts of at most n tokens would have kept those up to n. A chain is in order. Equal paths go by their places;
    among equals what was kept comes last, so that no more is promised than there was.
    """
    if not branched(step.drafts):
        return list(range(1, step.accepted + 1))
    tree, paths = StepTree.of(step.drafts), {PENDING: 1.0}
    for number, draft in enumerate(step.drafts):
        paths[number] = paths[tree.parents[number]] * (1.0 if draft.probability is None else draft.probability)
    order = sorted(range(len(step.drafts)), key=lambda n: (-paths[n], tree.places[n], n < step.accepted))
    return [rank for rank, number in enumerate(order, 1) if number < step.accepted]


def branched(drafts: Sequence[Drafted]) -> bool:
    """Whether there is more than one branch."""
    return any(draft.parent not in (None, number - 1) for number, draft in enumerate(drafts))
