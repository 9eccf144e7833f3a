"""Lookahead decoding (Fu et al. 2024): the target writes several later places at once, and these n-grams are drafted.

Two branches go through the target in one pass. The lookahead branch is a window of W columns and N - 1 levels. Level 0
is a guess at the text: the pending token and W - 1 tokens after it. A column's token of a later level follows that of
the level before. What the target finds likeliest after the last level completes an n-gram in each column; then the
levels move down by one, and what was found is the new last one (Jacobi iteration, several places at a time).

The n-grams go into a pool, by their first token. The verification branch drafts those that begin with the pending
token, up to G of them.

Both branches are one tree, so that tokens of the window that are right stay as any others do, and so does the target's
own token after a whole n-gram.
"""

from collections.abc import Collection, Iterable, Sequence

from specchat.engine.decoding.draft import Copier, Copy
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.strategy import Strategy

N = 3
"""Tokens of an n-gram."""
G = 8
"""N-grams that are kept of those that begin with one token, the latest used."""
SEED = 2048
"""Tokens of the text whose n-grams a reply begins with."""


def window_columns(limit: int) -> int:
    """W for a draft of so many tokens: with the pending token half of the rows are the window's, W = G in the paper."""
    return max(1, (limit + 1) // (2 * (N - 1))) if limit >= N - 1 else 0


class Pool:
    """N-grams by their first token."""

    def __init__(self, text: Sequence[int]) -> None:
        """Those of `text`."""
        self._grams: dict[int, dict[tuple[int, ...], None]] = {}
        for at in range(len(text) - N + 1):
            self.learn(text[at : at + N])

    def learn(self, gram: Sequence[int]) -> None:
        """Keep an n-gram as the newest of those with its first token; the oldest gives way where there are G."""
        first, *rest = gram
        grams = self._grams.setdefault(first, {})
        grams.pop(tuple(rest), None)
        grams[tuple(rest)] = None
        if len(grams) > G:
            del grams[next(iter(grams))]

    def after(self, token: int) -> list[tuple[int, ...]]:
        """What the n-grams that begin with `token` go on with, the newest first."""
        return list(reversed(self._grams.get(token, {})))


class PrefixTree:
    """Several drafts as one tree, in which those that begin alike share their first tokens.

    At most `limit` tokens follow the pending one, which is node 0; node i was the i-th to be added.
    """

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

    def copy(self, strategy: str) -> tuple[Copy, list[int]]:
        """The tree as a draft of `strategy`, siblings as they were added; by node, the node of the step that it is."""
        steps, tokens, parents = [0] * len(self._children), list[int](), list[int]()
        pending = [(child, 0) for child in reversed(self._children[0].values())]
        while pending:
            node, parent = pending.pop()
            tokens.append(self._tokens[node - 1])
            parents.append(parent)
            steps[node] = len(tokens)
            pending += [(child, steps[node]) for child in reversed(self._children[node].values())]
        return Copy(tokens, parents, strategy=strategy), steps


class LookaheadDrafter(Copier):
    """Needs no draft model and nothing that repeats; each step costs the window's rows."""

    name = "lookahead"

    def __init__(self) -> None:
        self.forget()

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self.forget()

    def forget(self) -> None:
        self._pool: Pool | None = None
        self._window: list[list[int]] = []
        """By level, the tokens of the columns."""
        self._last: list[int] = []
        """The nodes of the last level, where the step reads the window."""

    def propose(self, text: Sequence[int], limit: int) -> Copy:
        self._last = []
        if limit <= 0:
            return Copy(strategy=self.name)
        if self._pool is None:
            self._pool = Pool(text[-SEED:])
        tree = PrefixTree(limit)
        last = self._look_ahead(tree, text, window_columns(limit))
        for gram in self._pool.after(text[-1]):
            tree.add_path(gram)
        copy, steps = tree.copy(self.name)
        self._last = [steps[node] for node in last]
        copy.likeliest = bool(last)
        return copy

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        if not self._last or self._pool is None:
            return
        new = [stepped.likeliest[node] for node in self._last]
        for gram in zip(*self._window, new, strict=True):
            self._pool.learn(gram)
        self._window = [*self._window[1:], new]

    def _look_ahead(self, tree: PrefixTree, text: Sequence[int], columns: int) -> list[int]:
        """Add the window of so many columns; the nodes of its last level."""
        if not columns:
            return []
        if not self._window or len(self._window[0]) < columns:
            self._window = _first_window(text, columns)
        self._window = [level[:columns] for level in self._window]
        self._window[0][0] = text[-1]
        nodes = [0]
        for token in self._window[0][1:]:
            nodes.append(_added(tree, nodes[-1], token))
        for level in self._window[1:]:
            nodes = [_added(tree, node, token) for node, token in zip(nodes, level, strict=True)]
        return nodes


def _first_window(text: Sequence[int], columns: int) -> list[list[int]]:
    """Tokens of the text in place of guesses, in an order that they had: its last ones, over and over where few."""
    run = [text[-1 - at % len(text)] for at in range(columns + N - 2)][::-1]
    return [run[level : level + columns] for level in range(N - 1)]


def _added(tree: PrefixTree, node: int, token: int) -> int:
    added = tree.add(node, token)
    assert added is not None, "a window has fewer rows than a draft"
    return added


STRATEGY = Strategy(
    name="lookahead",
    group="itself",
    title="Lookahead",
    summary="The target writes at several later places in each pass and drafts what it wrote there.",
    draft_length=7,
    notes="""What it wrote there is drafted once the text gets to it (Fu et al. 2024): [lookahead.md](lookahead.md).
*Pays* where nothing repeats, no draft model is there, and verifying 8 rows costs little more than one.""",
    make=lambda _: LookaheadDrafter(),
    needs=("drafting", "trees"),
)
