"""Online search for the number of layers after which a target had best draft for itself."""

from specchat.engine.decoding.means import Mean

MOST = 8
"""Numbers of layers that are compared."""
ROUNDS = 2
"""Trials of each."""
LONGEST = 8
"""Drafted tokens up to which a number of layers is judged."""


class ExitSearch:
    """Compares layers by how often they would have drafted right, and what a token by them costs."""

    def __init__(self, layers: int, head: float, chosen: int | None = None) -> None:
        """For a target of at least two `layers` whose head weighs as much as `head` of them.

        What is `chosen` is not searched for. Otherwise a quarter of the layers drafts until a round of trials is over.
        """
        self._layers, self._head = layers, head
        step = -(-layers // (2 * MOST))
        self._right = {count: Mean() for count in ([chosen] if chosen else range(step, max(2, layers // 2 + 1), step))}
        self._chosen = chosen
        self.best = chosen or max(1, layers // 4)

    @property
    def done(self) -> bool:
        return self._chosen is not None or all(mean.count >= ROUNDS for mean in self._right.values())

    @property
    def next(self) -> int:
        """The number of layers to try next: the one tried least, the smallest of equals."""
        return min(self._right, key=lambda count: self._right[count].count)

    def tell(self, layers: int, share: float) -> None:
        """Of a trial's tokens `layers` would have drafted this share right."""
        self._right[layers].add(share)
        if all(mean.count for mean in self._right.values()):
            self.best = max(self._right, key=self._promise)

    def _promise(self, layers: int) -> float:
        """Tokens in the time of a plain one, of the best draft length, where a check costs what one token costs."""
        right, cost = self._right[layers].value, (layers + self._head) / (self._layers + self._head)
        tokens, chance, best = 1.0, 1.0, 0.0
        for drafted in range(1, LONGEST + 1):
            chance *= right
            tokens += chance
            best = max(best, tokens / (1 + drafted * cost))
        return best
