"""The recorded steps of a reply."""

from dataclasses import field

from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Changed, Step
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.step_tree import branched
from specchat.engine.protocol.tally import Tally
from specchat.engine.strategies import labelled

_RATED = 4
"""Steps from which a speed is worth telling."""
_RUN_MS = 2000.0
"""Changes that follow each other within so many milliseconds of steps are shown as one: keys pressed in a row."""


@dataclass(frozen=True)
class Mark:
    """A change of speculation, or a run of them, `offset` characters into the reply and before verify step `step`."""

    offset: int
    step: int
    tokens: int
    text: str


def speculation_label(speculation: Speculation) -> str:
    """`draft x5`, `plain`, `lookup x8 ratio`, `auto`."""
    if speculation.strategy == "plain":
        return "plain"
    return labelled(speculation.strategy, speculation.draft_length, speculation.acceptance)


@dataclass
class Record:
    """Verify steps and changes of speculation in their order. Offsets are characters of the reply's cleaned text."""

    first: Speculation
    """The speculation it began with."""
    steps: list[Step] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Start of each step in the text."""
    changes: list[tuple[int, Changed]] = field(default_factory=list)
    """Each change with the number of steps before it."""
    tally: Tally = field(default_factory=Tally)
    stretches: list[Tally] = field(default_factory=lambda: [Tally()])
    """The sums from the start to the first change of speculation, to the next, and so on."""
    branched: bool = False
    """True if a draft of any step was a tree of several branches."""
    _places: list[int] = field(default_factory=list)
    """Place of each change in the text."""

    @property
    def speculation(self) -> Speculation:
        """The latest one in use."""
        return self.changes[-1][1].speculation if self.changes else self.first

    def in_use(self) -> list[Speculation]:
        """The speculation in use at each step."""
        changes = {at: event.speculation for at, event in self.changes}
        used, speculation = [], self.first
        for number in range(len(self.steps)):
            speculation = changes.get(number, speculation)
            used.append(speculation)
        return used

    @property
    def stretch(self) -> Tally:
        """The sums since the latest change of speculation."""
        return self.stretches[-1]

    @property
    def marks(self) -> list[Mark]:
        """The changes in words, with the speeds measured before and after as far as they are known.

        A run of changes is one mark where it began; none where it ended with what it began with.
        """
        marks, begin = [], 0
        for number in range(len(self.changes)):
            if number + 1 < len(self.changes) and self.stretches[number + 1].milliseconds < _RUN_MS:
                continue
            before = self.changes[begin - 1][1].speculation if begin else self.first
            step, event = self.changes[begin]
            if label := _change_label(before, self.changes[number][1].speculation):
                rates = _rates(self.stretches[begin], self.stretches[number + 1])
                words = f"{label} at token {event.tokens}{rates}"
                marks.append(Mark(self._places[begin], step, event.tokens, words))
            begin = number + 1
        return marks

    def add(self, step: Step, offset: int) -> None:
        self.steps.append(step)
        self.offsets.append(offset)
        self.tally.add(step)
        self.stretch.add(step)
        self.branched = self.branched or branched(step.drafts)

    def change(self, event: Changed, offset: int) -> None:
        self.stretches.append(Tally())
        self.changes.append((len(self.steps), event))
        self._places.append(offset)


def _change_label(before: Speculation, after: Speculation) -> str:
    """`draft x5 → lookup x8`; `draft x12 → x8` where only the length changed; empty where nothing did."""
    old, new = speculation_label(before), speculation_label(after)
    if old == new:
        return ""
    only_length = (before.strategy, before.acceptance) == (after.strategy, after.acceptance)
    return f"{old} → x{after.draft_length}" if only_length else f"{old} → {new}"


def _rates(before: Tally, after: Tally) -> str:
    """` · 96 → 45 tok/s` or ` · 96 tok/s before`; empty while the steps before say too little."""
    if before.steps < _RATED or not before.milliseconds:
        return ""
    if after.steps < _RATED or not after.milliseconds:
        return f" · {_rate(before)} tok/s before"
    return f" · {_rate(before)} → {_rate(after)} tok/s"


def _rate(tally: Tally) -> str:
    return f"{tally.tokens_per_second:.{0 if tally.tokens_per_second >= 10 else 1}f}"
