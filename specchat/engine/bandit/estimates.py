"""Expected throughput of arms, from step costs and acceptance.

Estimates are cached until refreshed. If a model has not read the prompt, its estimate includes the time of reading.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from specchat.engine.bandit.arms import Arm, Estimate
from specchat.engine.bandit.averages import Average, expected_throughput
from specchat.engine.decoding.costs import StepCosts

MARGIN = 1.08
"""Ratio by which an arm must beat plain decoding, and a copy an arm, to replace it. The margin counters a bandit's bias
to overrated arms. A chosen arm is left once its ratio is below 1."""
KNOWN, MARGIN_KNOWN = 32, 1.03
"""Drafts after which an arm is well known, and its margin from then on."""
LENGTH = 64.0
"""Assumed tokens of a reply, before any is written."""


def with_reading(times: float, left: float, reading: float) -> float:
    """Throughput `times` plain decoding's, less the time of a reading.

    `reading` is in plain tokens, and is spread over the tokens `left` to write.
    """
    return left * times / (left + reading * times)


class Estimates:
    """Expected throughput of arms by name; chain and tree of a model are two arms."""

    def __init__(self, arms: Mapping[str, Arm], costs: StepCosts) -> None:
        self._arms, self._costs = arms, costs
        self._length = Average(Average(LENGTH))
        """Mean tokens of a reply, in this chat over all chats."""
        self._first: dict[int, list[tuple[float, str]]] = {}
        """`_ranks` of kinds of text in which no draft was judged in this chat."""
        self.forget()
        self.update_costs()

    def forget(self) -> None:
        """Forget this chat."""
        self._length.forget()
        self._chosen: dict[int, tuple[str, float]] = {}
        """Cached result of `_best` by kind of text, until any arm is refreshed."""
        self._taken: dict[int, str] = {}
        """Last chosen arm by kind of text."""
        self._ranks: dict[int, list[tuple[float, str]]] = {}
        """Arms with their throughput as a ratio to plain's, best first, by kind of text, until any is refreshed."""
        self._verified: set[int] = set()
        """Kinds of text in which a draft was verified in this chat."""

    def begin(self, written: int) -> None:
        """Begin a reply; the one before had `written` tokens, 0 if there was none."""
        if written:
            self._length.add(written)
        self._chosen.clear()

    def note_outcome(self, kind: int) -> None:
        """Note that a draft was verified in a text of this `kind`."""
        self._verified.add(kind)

    def forget_choices(self) -> None:
        """Drop cached choices after a model caught up with the text."""
        self._chosen.clear()

    def update_costs(self) -> None:
        """Update step costs."""
        self.verify_ms = self._costs.verify_ms()
        """Milliseconds of verifying 0, 1, ... tokens."""
        self.plain = 1 / (self.verify_ms[1] + self._costs.other_ms)
        """Tokens per millisecond of plain decoding."""

    def refresh(self, arms: Iterable[Arm]) -> None:
        """Drop cached estimates of these arms, and all choices of this chat."""
        self._chosen.clear()
        self._ranks.clear()
        for arm in arms:
            arm.refresh()

    def refresh_all(self) -> None:
        """Drop all cached estimates."""
        self.refresh(self._arms.values())
        self._first.clear()

    def best(self, kind: int, token_ids: Sequence[int], reads: str = "") -> tuple[str, float]:
        """Return the arm with the highest expected throughput in a text of this `kind`, and tokens per millisecond.

        "" is plain decoding. The model named `reads` reads the text anyway, at no extra cost.
        """
        if kind not in self._chosen:
            self._chosen[kind] = self._best(kind, token_ids, reads)
        name, times = self._chosen[kind]
        return name, times * self.plain

    def worth_reading(self, name: str, kind: int, prompt: Sequence[int]) -> bool:
        """Return True if no other arm has a higher estimate for a reply to `prompt`, reading included."""
        times = {
            one: self._with_reading(self._arms[one], estimated, prompt)
            for estimated, one in self.ranked(kind)
            if estimated > 1 and self._arms[one].chain is None
        }
        return name in times and times[name] >= max(1.0, *times.values())

    def estimate(self, name: str, kind: int) -> Estimate:
        """Return an arm's estimate for texts of this `kind`, without reading."""

        def times(accepted: float, drafted: float) -> float:
            draft_ms, other_ms = self._costs.draft_ms(name, drafted), self._costs.other_ms
            return expected_throughput(accepted, drafted, draft_ms, self.verify_ms, other_ms) / self.plain

        return self._arms[name].estimate(kind, times)

    def _best(self, kind: int, token_ids: Sequence[int], reads: str) -> tuple[str, float]:
        """Return the arm as `best` does, and its throughput as a ratio to plain's."""
        chosen, most, before = "", 1.0, self._taken.get(kind)
        for times, name in self.ranked(kind):
            if times <= most:
                break
            arm = self._arms[name]
            if reads != arm.reads.name:
                times = self._with_reading(arm, times, token_ids)
            margin = MARGIN if arm.known < KNOWN else MARGIN_KNOWN
            if times > (most if name == before else max(most, margin)):
                chosen, most = name, times
        self._taken[kind] = chosen
        return chosen, most

    def ranked(self, kind: int) -> list[tuple[float, str]]:
        """Return arms with their throughput as a ratio to plain's, best first, without reading."""
        known = self._ranks if kind in self._verified else self._first
        if kind not in known:
            known[kind] = sorted(
                (
                    (self.estimate(name, kind).times, name)
                    for name, arm in self._arms.items()
                    if arm.chain is None or self._costs.draft_token_ms(name)  # a tree must be explored first
                ),
                key=itemgetter(0),
                reverse=True,
            )
        return known[kind]

    def _with_reading(self, arm: Arm, times: float, token_ids: Sequence[int]) -> float:
        return with_reading(times, self._length.value, arm.reads.reading_ms(token_ids) * self.plain)
