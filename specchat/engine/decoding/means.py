"""Means of the times of parts of steps, which follow slow changes and which delays move little."""

NEWEST = 0.1
"""Weight of the newest measurement at least."""
SEEN, FIRST = 4, 8
"""Measurements that a mean is known by, and verify passes that weigh the same."""
LATER = 0.005
"""Weight of the newest pass after these: the load, which slows all of them, is measured apart."""
OUTLIER = 3.0
"""Times the mean that one measurement counts as at most."""
UP, RISE = 0.25, 1.1
"""Weight of what takes longer than expected, beside what takes less, and times the draft that was expected that one
counts as at most, to tell drafts by their lengths."""
KEPT = 0.97
"""Weight of the times of some rows after one more pass of any."""
SPREAD = 0.25
"""The spread of drafts' lengths that what is expected of a further token weighs as much as."""


class Mean:
    """A mean of milliseconds that follows slow changes, and that one slow step moves little."""

    __slots__ = ("count", "value")

    def __init__(self, expected: float = 0.0) -> None:
        """What is expected by an earlier measurement, if anything is."""
        self.value, self.count = expected, SEEN if expected else 0

    def add(self, value: float) -> None:
        self.count += 1
        weight = max(1 / self.count, NEWEST)
        if self.count > SEEN and value > 0 and self.value > 0:
            # By ratios, as all that is learnt of steps, and up by less: a busy machine only ever delays.
            up = UP if value > self.value else 1.0
            self.value *= min(max(value / self.value, 1 / OUTLIER), OUTLIER) ** (up * weight)
        else:
            self.value += (value - self.value) * weight


class SteadyMean(Mean):
    """Of verify passes of so many rows: that of the first ones, moved little by later ones.

    By their ratios, as the load is: were one an arithmetic and the other a geometric mean, they would drift apart.
    """

    def __init__(self, expected: float = 0.0) -> None:
        """What is expected by other counts of rows, if anything is."""
        super().__init__(expected)
        self.count = FIRST if expected else 0

    def add(self, value: float) -> None:
        self.count += 1
        if self.value > 0 and value > 0:
            self.value *= (value / self.value) ** (1 / self.count if self.count <= FIRST else LATER)
        else:
            self.value += (value - self.value) / self.count


class Line:
    """What drafts take by their lengths: so much, and so much more for each token, which is what a longer one adds."""

    def __init__(self, share: float = 1.0) -> None:
        """`share` of what a drafted token takes is expected to be added by a further one."""
        self._share = share
        self._weight = self._tokens = self._ms = self._squares = self._products = 0.0

    def add(self, tokens: int, ms: float) -> None:
        """A draft of so many tokens took so long."""
        sums = (self._weight, self._tokens, self._ms, self._squares, self._products)
        new = (1.0, tokens, ms, tokens * tokens, tokens * ms)
        kept = [KEPT * old + one for old, one in zip(sums, new, strict=True)]
        self._weight, self._tokens, self._ms, self._squares, self._products = kept

    def scale(self, times: float) -> None:
        """Take all that was seen for so many times as long."""
        self._ms *= times
        self._products *= times

    def of(self, tokens: float, token_ms: float) -> float:
        """Milliseconds of a draft of so many tokens, where a drafted one takes `token_ms` on average."""
        if not self._weight:
            return tokens * token_ms
        return max(0.0, self._ms / self._weight + (tokens - self._tokens / self._weight) * self.further(token_ms))

    def further(self, token_ms: float) -> float:
        """Milliseconds of one more token, where a drafted one takes `token_ms` on average: that at most.

        Least squares; the less the lengths differed, the more what was expected counts.
        """
        if not self._weight:
            return token_ms * self._share
        tokens, ms = self._tokens / self._weight, self._ms / self._weight
        spread = self._squares / self._weight - tokens * tokens
        slope = self._products / self._weight - tokens * ms
        return min(max(0.0, (slope + SPREAD * self._share * token_ms) / (spread + SPREAD)), token_ms)
