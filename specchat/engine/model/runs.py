"""How the rows of a pass follow each other, where they are a tree of drafted tokens and not one chain."""

from collections.abc import Sequence
from dataclasses import dataclass

STASH_ROWS = 64
"""Most nodes of a tree that a model runs over."""


@dataclass(frozen=True)
class Runs:
    """Rows in runs of tokens that follow each other.

    Run r has `lengths[r]` rows, the first of them `depths[r]` slots after the start of the pass. The entries of the
    rows `before[r]` of the stash come right before it: what it follows and the cache does not hold. The entries of the
    pass's own rows go into the stash from row `stashed` on.
    """

    depths: list[int]
    lengths: list[int]
    before: list[list[int]]
    stashed: int = 0


def chain(rows: int) -> Runs:
    """One run."""
    return Runs([0], [rows], [[]])


def depth_first(parents: Sequence[int]) -> Runs:
    """The rows of nodes 0, 1, ...; node i + 1 follows node `parents[i]`, in depth-first order.

    In this order the slots before a run hold the run's own path, so that nothing must be put there.
    """
    node_depths, depths, lengths = [0], [0], [1]
    for node, parent in enumerate(parents, 1):
        node_depths.append(node_depths[parent] + 1)
        if parent == node - 1:
            lengths[-1] += 1
        else:
            depths.append(node_depths[node])
            lengths.append(1)
    return Runs(depths, lengths, [[] for _ in depths])


class Levels:
    """The passes over a tree that is grown level by level: what each puts into the cache before its rows."""

    def __init__(self) -> None:
        self._stashed = 0
        self._held: list[int] = []
        """Rows of the stash whose entries are in the slots after the start."""

    def runs(self, paths: Sequence[Sequence[int]]) -> Runs:
        """One row for each of `paths`, all equally deep: the rows of the stash from the first level to its parent."""
        before = []
        for row, path in enumerate(paths, self._stashed):
            same = next((i for i, (a, b) in enumerate(zip(path, self._held, strict=False)) if a != b), len(path))
            before.append(list(path[same:]))
            self._held = [*path, row]
        runs = Runs([len(path) + 1 for path in paths], [1] * len(paths), before, self._stashed)
        self._stashed += len(paths)
        return runs


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix of two token sequences."""
    limit = min(len(a), len(b))
    return next((i for i in range(limit) if a[i] != b[i]), limit)
