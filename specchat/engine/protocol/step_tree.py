"""A step's drafts as a tree, with parents and positions. A chain is a tree with one branch."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.protocol.events import Drafted, Step

PENDING = -1
"""Parent of the first drafts: the token pending at the start of the step."""


@dataclass(frozen=True, slots=True)
class StepTree:
    """Parents precede their children: `parents[i] < i`. Position 1 follows the pending token."""

    parents: tuple[int, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, drafts: Sequence[Drafted]) -> "StepTree":
        """The tree of `Step.drafts`.

        Raises:
            ValueError: a draft's parent does not precede it.
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
        """Children of each draft and of PENDING, in the order of the step; without leaves."""
        found: dict[int, list[int]] = {}
        for number, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(number)
        return found


def likeliest(drafts: Sequence[Drafted], among: Sequence[int]) -> int:
    """The most probable draft, the first of equal ones; drafts without a probability come last."""
    return max(among, key=lambda number: -1.0 if (chance := drafts[number].probability) is None else chance)


def ranks(step: Step) -> list[int]:
    """Rank of each accepted draft, from 1, if the likeliest paths of the tree are drafted first.

    A draft of at most n tokens would have accepted those up to rank n. A chain is in order. Equal paths are ranked by
    position, and accepted ones last among equals, which avoids overestimates.
    """
    if not branched(step.drafts):
        return list(range(1, step.accepted + 1))
    tree, paths = StepTree.of(step.drafts), {PENDING: 1.0}
    for number, draft in enumerate(step.drafts):
        paths[number] = paths[tree.parents[number]] * (1.0 if draft.probability is None else draft.probability)
    order = sorted(range(len(step.drafts)), key=lambda n: (-paths[n], tree.places[n], n < step.accepted))
    return [rank for rank, number in enumerate(order, 1) if number < step.accepted]


def branched(drafts: Sequence[Drafted]) -> bool:
    """True if there are several branches."""
    return any(draft.parent not in (None, number - 1) for number, draft in enumerate(drafts))
