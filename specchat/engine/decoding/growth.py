"""Growth of a draft tree, and selection of its best nodes (EAGLE-2, Li et al. 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.decoding.draft import WIDTH, Draft
from specchat.engine.model.tree_layout import Layout, Levels

ROOT = -1
"""The pending token, start of every path."""


@dataclass(frozen=True)
class Candidate:
    """A candidate child of node `parent`, with its probability and the value of its path."""

    token: int
    parent: int
    probability: float
    value: float


class Growth:
    """A growing tree: nodes in the order they were found, and the `frontier` to expand next."""

    def __init__(self, least: float) -> None:
        """Create an empty tree, which leaves out nodes with a value below `least`."""
        self.frontier = [ROOT]
        self._least = least
        self._nodes: list[Candidate] = []
        self._levels = Levels()
        self._rows: dict[int, int] = {}
        """Row in the tree KV scratch of each node that a model ran over."""

    def path(self, node: int) -> list[int]:
        """Return the nodes from the first level to `node`."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self._nodes[node].parent
        return path[::-1]

    def tokens(self, nodes: Sequence[int]) -> list[int]:
        """Return the tokens of `nodes`."""
        return [self._nodes[node].token for node in nodes]

    def layout(self) -> Layout:
        """Layout of the pass over the frontier, which must not be the root."""
        layout = self._levels.layout([[self._rows[node] for node in self.path(node)[:-1]] for node in self.frontier])
        self._rows |= {node: row for row, node in enumerate(self.frontier, layout.scratch_row)}
        return layout

    def rows(self, path: Sequence[int]) -> list[int]:
        """Return rows in the tree KV scratch of a path's nodes, up to the first node that no model ran over."""
        rows: list[int] = []
        for node in path:
            if node not in self._rows:
                break
            rows.append(self._rows[node])
        return rows

    def add(self, parent: int, tokens: Sequence[int], probabilities: Sequence[float], shares: Sequence[float]) -> None:
        """Add candidate children of `parent`, a node of the frontier."""
        value = 1.0 if parent == ROOT else self._nodes[parent].value
        for token, probability, share in zip(tokens, probabilities, shares, strict=True):
            if value * share >= self._least:
                self._nodes.append(Candidate(token, parent, probability, value * share))

    def advance(self, first: int) -> None:
        """Set the frontier to the best WIDTH nodes from number `first` on."""
        self.frontier = sorted(range(first, len(self._nodes)), key=self._worth)[:WIDTH]

    def __len__(self) -> int:
        return len(self._nodes)

    def best(self, limit: int) -> tuple[Draft, list[int]]:
        """Return the best `limit` nodes as a draft in depth-first order, best siblings first, and their numbers here.

        A parent has at least its child's value and was found earlier, so it is always included.
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
