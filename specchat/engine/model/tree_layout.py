"""Layout of a pass over a tree of draft tokens: its runs and their ancestors."""

from collections.abc import Sequence

from specchat.dataclass import dataclass

MAX_TREE_NODES = 64
"""Limit of the nodes in one tree, and size of the tree KV scratch."""


@dataclass(frozen=True)
class Layout:
    """Rows of a pass in runs: each row of a run is the child of the row before.

    Run r has `lengths[r]` rows, the first `depths[r]` positions after the start of the pass. The rows `ancestors[r]` of
    the tree KV scratch precede it: its ancestors that the cache does not hold. The pass writes its KV entries to the
    scratch from row `scratch_row` on.
    """

    depths: list[int]
    lengths: list[int]
    ancestors: list[list[int]]
    scratch_row: int = 0


def chain(rows: int) -> Layout:
    """Layout of one run."""
    return Layout([0], [rows], [[]])


def depth_first(parents: Sequence[int]) -> Layout:
    """Layout of nodes 0, 1, ... in depth-first order; `parents[i]` is the parent of node i + 1.

    In this order the positions before a run hold the run's own path, so no ancestors are copied there.
    """
    node_depths, depths, lengths = [0], [0], [1]
    for node, parent in enumerate(parents, 1):
        node_depths.append(node_depths[parent] + 1)
        if parent == node - 1:
            lengths[-1] += 1
        else:
            depths.append(node_depths[node])
            lengths.append(1)
    return Layout(depths, lengths, [[] for _ in depths])


class Levels:
    """Layouts of the passes over a tree that grows level by level."""

    def __init__(self) -> None:
        self._scratch_row = 0
        self._held: list[int] = []
        """Rows of the scratch whose KV entries are at the positions after the start."""

    def layout(self, paths: Sequence[Sequence[int]]) -> Layout:
        """Layout of a level with one row for each of `paths`: scratch rows from the first level to the row's parent."""
        ancestors = []
        for row, path in enumerate(paths, self._scratch_row):
            same = next((i for i, (a, b) in enumerate(zip(path, self._held, strict=False)) if a != b), len(path))
            ancestors.append(list(path[same:]))
            self._held = [*path, row]
        layout = Layout([len(path) + 1 for path in paths], [1] * len(paths), ancestors, self._scratch_row)
        self._scratch_row += len(paths)
        return layout


COMPARED = 256
"""Tokens that are compared at a time."""


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix of two token sequences."""
    limit = min(len(a), len(b))
    for first in range(0, limit, COMPARED):
        last = min(first + COMPARED, limit)
        if a[first:last] != b[first:last]:
            differs = next((i for i in range(first, last) if a[i] != b[i]), None)
            if differs is not None:  # a list and a tuple are never equal
                return differs
    return limit
