"""Several drafts as one tree, in which those that begin alike share their first tokens."""

from collections.abc import Iterable

from specchat.engine.decoding.draft import Drafts


class PrefixTree:
    """At most `limit` tokens that follow the pending one, which is node 0; node i was the i-th to be added."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tokens: list[int] = []
        self._children: list[dict[int, int]] = [{}]
        """By node, the node of each token that follows it."""

    def add(self, node: int, token: int) -> int | None:
        """The node of `token` after `node`; None where there is no room for it."""
        found = self._children[node].get(token)
        if found is None and len(self._tokens) < self._limit:
            self._tokens.append(token)
            found = self._children[node][token] = len(self._tokens)
            self._children.append({})
        return found

    def add_path(self, tokens: Iterable[int]) -> None:
        """Let `tokens` follow node 0, as many of them as there is room for."""
        node = 0
        for token in tokens:
            if (added := self.add(node, token)) is None:
                return
            node = added

    def fill(self, drafts: Drafts) -> list[int]:
        """Draft the tree, of siblings the one that was added first; by node, the node of the step that it is."""
        steps, tokens, parents = [0] * len(self._children), list[int](), list[int]()
        pending = [(child, 0) for child in reversed(self._children[0].values())]
        while pending:
            node, parent = pending.pop()
            tokens.append(self._tokens[node - 1])
            parents.append(parent)
            steps[node] = len(tokens)
            pending += [(child, steps[node]) for child in reversed(self._children[node].values())]
        drafts.fill(tokens, parents=parents)
        return steps
