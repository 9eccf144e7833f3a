"""Lookahead decoding (Fu et al. 2024): the target predicts several later positions at once, for n-grams to draft.

Two branches go through the target in one pass. The lookahead branch is a window of W columns and N - 1 levels. Level 0
is the pending token and W - 1 guessed tokens. A column's token of a later level follows that of the level before. The
target's likeliest token after the last level completes an n-gram in each column, and forms the new last level as the
others move down by one (Jacobi iteration).

The n-grams go into a pool, by their first token. The verification branch drafts up to G of those that begin with the
pending token.

Both branches form one tree, so that right tokens of the window are accepted too.
"""

from collections.abc import Collection, Iterable, Sequence

from specchat.engine.decoding.draft import Copier, Copy
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.protocol.picture_ids import of_text
from specchat.engine.strategy import Strategy

N = 3
"""Tokens of an n-gram."""
G = 8
"""Most n-grams in the pool for one first token, the latest used."""
SEED = 2048
"""Tokens of the text whose n-grams seed the pool."""


def window_columns(limit: int) -> int:
    """W for a draft of `limit` tokens: window and pending token take half of the rows; W = G in the paper."""
    return max(1, (limit + 1) // (2 * (N - 1))) if limit >= N - 1 else 0


class Pool:
    """Pool of n-grams by their first token."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        """Initialise with the n-grams of `token_ids`."""
        self._grams: dict[int, dict[tuple[int, ...], None]] = {}
        for at in range(len(token_ids) - N + 1):
            self.learn(token_ids[at : at + N])

    def learn(self, gram: Sequence[int]) -> None:
        """Add an n-gram as the newest with its first token; beyond G the oldest goes."""
        first, *rest = gram
        grams = self._grams.setdefault(first, {})
        grams.pop(tuple(rest), None)
        grams[tuple(rest)] = None
        if len(grams) > G:
            del grams[next(iter(grams))]

    def after(self, token: int) -> list[tuple[int, ...]]:
        """Continuations of `token` from its n-grams, the newest first."""
        return list(reversed(self._grams.get(token, {})))


class PrefixTree:
    """Several drafts as one tree, with shared prefixes.

    At most `limit` tokens follow the pending one, which is node 0; node i was the i-th to be added.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tokens: list[int] = []
        self._children: list[dict[int, int]] = [{}]
        """For each node, its children by token."""

    def add(self, node: int, token: int) -> int | None:
        """Return the node of `token` after `node`; None without room for it."""
        found = self._children[node].get(token)
        if found is None and len(self._tokens) < self._limit:
            self._tokens.append(token)
            found = self._children[node][token] = len(self._tokens)
            self._children.append({})
        return found

    def add_path(self, tokens: Iterable[int]) -> None:
        """Add a path of `tokens` after node 0, as far as there is room."""
        node = 0
        for token in tokens:
            if (added := self.add(node, token)) is None:
                return
            node = added

    def copy(self, strategy: str) -> tuple[Copy, list[int]]:
        """Return the tree as a draft of `strategy`, siblings in order of addition, and the step's node of each node."""
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
    """Drafter that needs neither a draft model nor repetition; each step costs the window's rows."""

    name = "lookahead"

    def __init__(self) -> None:
        self.forget()

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self.forget()

    def forget(self) -> None:
        self._pool: Pool | None = None
        self._window: list[list[int]] = []
        """Tokens of the columns, by level."""
        self._last: list[int] = []
        """Nodes of the last level, which complete the n-grams."""

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        self._last = []
        if limit <= 0:
            return Copy(strategy=self.name)
        if self._pool is None:
            self._pool = Pool(of_text(token_ids[-SEED:]))
        tree = PrefixTree(limit)
        last = self._look_ahead(tree, token_ids, window_columns(limit))
        for gram in self._pool.after(token_ids[-1]):
            tree.add_path(gram)
        copy, steps = tree.copy(self.name)
        self._last = [steps[node] for node in last]
        copy.likeliest = bool(last)
        return copy

    def observe(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        if not self._last or self._pool is None:
            return
        new = [outcome.likeliest[node] for node in self._last]
        for gram in zip(*self._window, new, strict=True):
            self._pool.learn(gram)
        self._window = [*self._window[1:], new]

    def _look_ahead(self, tree: PrefixTree, token_ids: Sequence[int], columns: int) -> list[int]:
        """Add a window of `columns` columns; return the nodes of its last level."""
        if not columns:
            return []
        if not self._window or len(self._window[0]) < columns:
            self._window = _first_window(of_text(token_ids[-SEED:]), columns)
        self._window = [level[:columns] for level in self._window]
        self._window[0][0] = token_ids[-1]
        nodes = [0]
        for token in self._window[0][1:]:
            nodes.append(_added(tree, nodes[-1], token))
        for level in self._window[1:]:
            nodes = [_added(tree, node, token) for node, token in zip(nodes, level, strict=True)]
        return nodes


def _first_window(token_ids: Sequence[int], columns: int) -> list[list[int]]:
    """Return a first window from the last tokens of the text, repeated if there are too few."""
    run = [token_ids[-1 - at % len(token_ids)] for at in range(columns + N - 2)][::-1]
    return [run[level : level + columns] for level in range(N - 1)]


def _added(tree: PrefixTree, node: int, token: int) -> int:
    added = tree.add(node, token)
    assert added is not None, "a window has fewer rows than a draft"
    return added


STRATEGY = Strategy(
    name="lookahead",
    group="itself",
    title="Lookahead",
    summary="The target also guesses at later positions, and drafts its guesses there.",
    draft_length=7,
    notes="""Each pass makes guesses, which form a pool of n-grams (Fu et al. 2024): [lookahead.md](lookahead.md).
*Pays* where nothing repeats, the pair has no draft model, and verifying 8 tokens costs little more than one.""",
    make=lambda _: LookaheadDrafter(),
    needs=("drafting", "trees"),
)
