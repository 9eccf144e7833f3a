"""Robust running means of step times: they follow slow changes, and delays move them little."""

NEWEST = 0.1
"""Least weight of the newest measurement."""
SEEN, FIRST = 4, 8
"""Measurements after which a mean is known, and number of first verify passes, which weigh the same."""
LATER = 0.005
"""Weight of each later verify pass; the load, which slows all of them, is measured apart."""
OUTLIER = 3.0
"""Largest ratio to the mean that one measurement counts as."""
UP, RISE = 0.25, 1.1
"""Relative weight of measurements above the mean, and largest ratio of a draft to its expected time in a `Line`."""
KEPT = 0.97
"""Decay per measurement of sums, and of weights of verify passes."""
SPREAD = 0.25
"""Weight of the expected slope of a `Line`, as a variance of draft lengths."""


class Mean:
    """A robust running mean of milliseconds."""

    __slots__ = ("_up", "count", "value")

    def __init__(self, expected: float = 0.0, up: float = UP) -> None:
        """Start from the mean `expected` from an earlier measurement, if any; `up` is the weight of those above it.

        With less than 1 the mean of noisy measurements is too low.
        """
        self.value, self.count, self._up = expected, SEEN if expected else 0, up

    def add(self, value: float) -> None:
        self.count += 1
        weight = max(1 / self.count, NEWEST)
        if self.count > SEEN and value > 0 and self.value > 0:
            # A geometric mean, as in all step costs; less weight upwards, as a busy machine only delays.
            up = self._up if value > self.value else 1.0
            self.value *= min(max(value / self.value, 1 / OUTLIER), OUTLIER) ** (up * weight)
        else:
            self.value += (value - self.value) * weight


class SteadyMean(Mean):
    """A mean of verify passes of one size: that of the first ones, moved little by later ones.

    It is geometric like the load factor: an arithmetic mean would drift from it.
    """

    def __init__(self, expected: float = 0.0) -> None:
        """Start from the mean `expected` from other sizes, if any."""
        super().__init__(expected)
        self.count = FIRST if expected else 0

    def add(self, value: float) -> None:
        self.count += 1
        if self.value > 0 and value > 0:
            self.value *= (value / self.value) ** (1 / self.count if self.count <= FIRST else LATER)
        else:
            self.value += (value - self.value) / self.count


class Line:
    """Linear fit of draft times by draft length."""

    def __init__(self, share: float = 1.0) -> None:
        """Create a fit whose expected slope is `share` of the mean time per drafted token."""
        self._share = share
        self._weight = self._tokens = self._ms = self._squares = self._products = 0.0

    def add(self, tokens: int, ms: float) -> None:
        """Count a draft of `tokens` tokens."""
        sums = (self._weight, self._tokens, self._ms, self._squares, self._products)
        new = (1.0, tokens, ms, tokens * tokens, tokens * ms)
        decayed = [KEPT * old + one for old, one in zip(sums, new, strict=True)]
        self._weight, self._tokens, self._ms, self._squares, self._products = decayed

    def scale(self, times: float) -> None:
        """Scale all times."""
        self._ms *= times
        self._products *= times

    def ms(self, tokens: float, token_ms: float) -> float:
        """Milliseconds of a draft of `tokens` tokens; `token_ms` is the mean time per drafted token."""
        if not self._weight:
            return tokens * token_ms
        return max(0.0, self._ms / self._weight + (tokens - self._tokens / self._weight) * self.further_ms(token_ms))

    def further_ms(self, token_ms: float) -> float:
        """Milliseconds of one more token, at most `token_ms`, the mean time per drafted token.

        Least squares, with a prior that counts more the less the lengths differ.
        """
        if not self._weight:
            return token_ms * self._share
        tokens, ms = self._tokens / self._weight, self._ms / self._weight
        spread = self._squares / self._weight - tokens * tokens
        slope = self._products / self._weight - tokens * ms
        return min(max(0.0, (slope + SPREAD * self._share * token_ms) / (spread + SPREAD)), token_ms)
