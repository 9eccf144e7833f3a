"""How seldom `auto` thinks where nothing is drafted: what it thinks costs a small share of plain's time at most."""

THINKING, RESTS = 0.02, 64
"""Share of plain's time that thinking may take where nothing is drafted, and steps that go by without it, at most."""
BARREN, SELDOM = 4, 4
"""Looks in vain after which they become half as frequent, and times that they get rarer by that, at most."""


class Rest:
    """Steps at which nothing is thought of, which are plain decoding's own."""

    def __init__(self) -> None:
        self._barren = 0
        """Looks in a row that found nothing to draft."""
        self.begin()

    def begin(self) -> None:
        """A reply begins, with a look."""
        self._left = self.passed = 0
        """Steps that are left of this rest, and those that went by since the last look."""

    def goes_on(self) -> bool:
        """Whether the next step belongs to it."""
        if not self._left:
            return False
        self._left -= 1
        self.passed += 1
        return True

    def end(self) -> int:
        """How many steps went by; a look follows."""
        passed, self.passed = self.passed, 0
        return passed

    def found(self) -> None:
        """The look found something to draft."""
        self._barren = 0

    def found_nothing(self, share: float) -> None:
        """Nothing is drafted, and thinking takes such a `share` of a plain step."""
        self._barren += 1
        seldom = min(1 << (self._barren // BARREN), SELDOM)
        self._left = min(int(seldom * share / THINKING), RESTS)
