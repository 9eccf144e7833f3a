"""Which arm has the highest expected throughput, by what steps cost and what its drafts brought.

An arm's estimate is worked out anew after so many of its drafts, or steps of any kind; until then it holds. A reply
that begins with a prompt which a model has not read pays for that reading, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from specchat.engine.bandit.arms import Arm, Estimate
from specchat.engine.bandit.averages import Average, expected_throughput
from specchat.engine.decoding.costs import StepCosts

MARGIN = 1.08
"""An arm is taken for so much more than plain's throughput, and left for less than plain's; a copy takes its place for
so much more than its own: of two the one that is overrated is taken too often."""
KNOWN, MARGIN_KNOWN = 32, 1.03
"""Drafts by which an arm is well known, and the margin then."""
LENGTH = 64.0
"""Tokens of a reply, before any was written."""


def with_reading(times: float, left: float, reading: float) -> float:
    """`times` plain's throughput less a reading that lasts as long as so many plain tokens.

    It is paid out of the tokens that are `left` to write.
    """
    return left * times / (left + reading * times)


class Estimates:
    """Expected throughput of arms by name: a tree beside the chain that the same model drafts."""

    def __init__(self, arms: Mapping[str, Arm], costs: StepCosts) -> None:
        self._arms, self._costs = arms, costs
        self._length = Average(Average(LENGTH))
        """Tokens of replies, in this chat and in others."""
        self._first: dict[int, list[tuple[float, str]]] = {}
        """The `_ranks` of kinds of text in which no draft of this text was judged."""
        self.forget()
        self.look()

    def forget(self) -> None:
        """Know of no text in particular."""
        self._length.forget()
        self._chosen: dict[int, tuple[str, float]] = {}
        """What `most` found, by kind of text, until any arm is refreshed."""
        self._taken: dict[int, str] = {}
        """The arm that was taken when that was found out last, by kind of text."""
        self._ranks: dict[int, list[tuple[float, str]]] = {}
        """Times plain's of all arms, the most first, by kind of text, until any is refreshed."""
        self._judged: set[int] = set()
        """Kinds of text in which a draft was judged."""

    def begin(self, written: int) -> None:
        """A reply begins with another prompt to read; the one before it had so many tokens, 0 where there was none."""
        if written:
            self._length.add(written)
        self._chosen.clear()

    def judged(self, of: int) -> None:
        """A draft was judged in a text of kind `of`."""
        self._judged.add(of)

    def read(self) -> None:
        """A model has read what it had to."""
        self._chosen.clear()

    def look(self) -> None:
        """Take what steps cost now."""
        self.verify_ms = self._costs.verify_ms()
        """Milliseconds of verifying 0, 1, ... rows."""
        self.plain = 1 / (self.verify_ms[1] + self._costs.other_ms)
        """Tokens a millisecond of plain decoding."""

    def refresh(self, arms: Iterable[Arm]) -> None:
        """Work out these arms' estimates anew in this text."""
        self._chosen.clear()
        self._ranks.clear()
        for arm in arms:
            arm.refresh()

    def refresh_all(self) -> None:
        """Work out all estimates anew in any text."""
        self.refresh(self._arms.values())
        self._first.clear()

    def most(self, of: int, text: Sequence[int], reads: str = "") -> tuple[str, float]:
        """The arm with the highest expected throughput in a `text` of kind `of`, and tokens a millisecond.

        "" is plain decoding. The model named `reads` is about to read the text: that costs no more.
        """
        if of not in self._chosen:
            self._chosen[of] = self._most(of, text, reads)
        name, times = self._chosen[of]
        return name, times * self.plain

    def worth_reading(self, name: str, of: int, prompt: Sequence[int]) -> bool:
        """Whether no other arm has a higher estimate in a reply that begins with `prompt`, which it may read beside the
        target."""
        times = {
            one: self._with_reading(self._arms[one], estimated, prompt)
            for estimated, one in self.ranked(of)
            if estimated > 1 and self._arms[one].chain is None
        }
        return name in times and times[name] >= max(1.0, *times.values())

    def estimate(self, name: str, of: int) -> Estimate:
        """An arm's estimate in a text of kind `of`, of which it has read all."""

        def times(accepted: float, drafted: float) -> float:
            draft_ms, other_ms = self._costs.drafting(name, drafted), self._costs.other_ms
            return expected_throughput(accepted, drafted, draft_ms, self.verify_ms, other_ms) / self.plain

        return self._arms[name].estimate(of, times)

    def _most(self, of: int, text: Sequence[int], reads: str) -> tuple[str, float]:
        """What `most` gives, by times plain's."""
        chosen, most, before = "", 1.0, self._taken.get(of)
        for times, name in self.ranked(of):
            if times <= most:
                break
            arm = self._arms[name]
            if reads != arm.reads.name:
                times = self._with_reading(arm, times, text)
            margin = MARGIN if arm.known < KNOWN else MARGIN_KNOWN
            if times > (most if name == before else max(most, margin)):
                chosen, most = name, times
        self._taken[of] = chosen
        return chosen, most

    def ranked(self, of: int) -> list[tuple[float, str]]:
        """Times plain's of arms that have read a text of kind `of`, the most first."""
        known = self._ranks if of in self._judged else self._first
        if of not in known:
            known[of] = sorted(
                (
                    (self.estimate(name, of).times, name)
                    for name, arm in self._arms.items()
                    if arm.chain is None or self._costs.draft(name)  # a tree must be explored first
                ),
                key=itemgetter(0),
                reverse=True,
            )
        return known[of]

    def _with_reading(self, arm: Arm, times: float, text: Sequence[int]) -> float:
        return with_reading(times, self._length.value, arm.reads.behind(text) * self.plain)
