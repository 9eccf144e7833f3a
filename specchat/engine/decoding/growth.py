"""A tree of drafted tokens while it is grown, and its best part (EAGLE-2, Li et al. 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.decoding.draft import WIDTH, Draft
from specchat.engine.model.tree_layout import Layout, Levels

ROOT = -1
"""The pending token, which every path starts from."""


@dataclass(frozen=True)
class Candidate:
    """A token that may follow the node `parent`, its probability, and the value of the path up to it."""

    token: int
    parent: int
    probability: float
    value: float


class Growth:
    """Nodes in the order they were found; `frontier` are those that the next level goes on from."""

    def __init__(self, least: float) -> None:
        """Nodes of a value below `least` are not taken up."""
        self.frontier = [ROOT]
        self._least = least
        self._nodes: list[Candidate] = []
        self._levels = Levels()
        self._rows: dict[int, int] = {}
        """The row of the stash of each node that a model ran over."""

    def path(self, node: int) -> list[int]:
        """The nodes from the first level to `node`."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self._nodes[node].parent
        return path[::-1]

    def tokens(self, nodes: Sequence[int]) -> list[int]:
        """The tokens of nodes."""
        return [self._nodes[node].token for node in nodes]

    def runs(self) -> Layout:
        """The pass over the frontier, which is not the root."""
        runs = self._levels.runs([[self._rows[node] for node in self.path(node)[:-1]] for node in self.frontier])
        self._rows |= {node: row for row, node in enumerate(self.frontier, runs.scratch_row)}
        return runs

    def rows(self, path: Sequence[int]) -> list[int]:
        """The rows of the stash of a path's nodes, up to the first one that no model ran over."""
        rows: list[int] = []
        for node in path:
            if node not in self._rows:
                break
            rows.append(self._rows[node])
        return rows

    def add(self, parent: int, tokens: Sequence[int], probabilities: Sequence[float], shares: Sequence[float]) -> None:
        """Take up what may follow a node of the frontier."""
        value = 1.0 if parent == ROOT else self._nodes[parent].value
        for token, probability, share in zip(tokens, probabilities, shares, strict=True):
            if value * share >= self._least:
                self._nodes.append(Candidate(token, parent, probability, value * share))

    def advance(self, first: int) -> None:
        """Go on from the best WIDTH nodes from `first` on."""
        self.frontier = sorted(range(first, len(self._nodes)), key=self._worth)[:WIDTH]

    def __len__(self) -> int:
        return len(self._nodes)

    def best(self, limit: int) -> tuple[Draft, list[int]]:
        """The best `limit` nodes in depth-first order, the best of siblings first; and which each node is here.

        A parent is worth as much as its child at least and was found before it: so it is among them.
        """
        children: dict[int, list[int]] = {}
        for node in sorted(range(len(self._nodes)), key=self._worth)[:limit]:
            children.setdefault(self._nodes[node].parent, []).append(node)
        draft, order, pending = Draft(), [], [(node, 0) for node in reversed(children.get(ROOT, []))]
        while pending:
            node, parent = pending.pop()
            order.append(node)
            draft.tokens.append(self._nodes[node].token)
            draft.parents.append(parent)
            draft.confidence.append(self._nodes[node].probability)
            pending += [(child, len(order)) for child in reversed(children.get(node, []))]
        return draft, order

    def _worth(self, node: int) -> tuple[float, int]:
        return -self._nodes[node].value, node
