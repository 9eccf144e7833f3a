"""A recorded reply played again: which step is on the screen at which time."""

from bisect import bisect_right
from dataclasses import dataclass

from specchat import figures
from specchat.chat.record import Record
from specchat.chat.turn import Reply
from specchat.engine.protocol.events import Started, Step

PACES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SHOWN_S = 8.0
"""Seconds over which something shorter is shown, so that eyes can follow it."""
_ROUNDING = 1e-6


class Pace:
    """Pace of recorded time for the viewer."""

    def __init__(self) -> None:
        self._at = PACES.index(1.0)

    def speed(self, total: float) -> float:
        """Times the measured pace, for something that took `total` milliseconds."""
        return min(total / (1000 * SHOWN_S), 1.0) * PACES[self._at] if total else 1.0

    def words(self, total: float) -> str:
        """`80x slower`, than it was."""
        speed = self.speed(total)
        if speed < 1:
            return f"{figures.times(1 / speed)} slower"
        return f"{figures.times(speed)} faster" if speed > 1 else "as fast as it was"

    def faster(self, by: int) -> None:
        """The next higher paces, or lower ones."""
        self._at = max(0, min(self._at + by, len(PACES) - 1))


class Timeline:
    """End of each step of a record, in milliseconds of decoding; follows a record that still grows."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._ends: list[float] = []
        self._tokens: list[int] = [0]

    def update(self) -> None:
        """Take in the steps that came since the last call."""
        for step in self._record.steps[len(self._ends) :]:
            self._ends.append(self.total + step.milliseconds)
            self._tokens.append(self._tokens[-1] + step.emitted)

    @property
    def total(self) -> float:
        return self._ends[-1] if self._ends else 0.0

    @property
    def steps(self) -> int:
        return len(self._ends)

    def steps_at(self, milliseconds: float) -> int:
        """Number of steps done by then."""
        return bisect_right(self._ends, milliseconds + _ROUNDING)

    def end_of(self, steps: int) -> float:
        """Time at which that many steps were done."""
        return self._ends[steps - 1] if steps else 0.0

    def tokens_after(self, steps: int) -> int:
        return self._tokens[steps]


@dataclass(frozen=True)
class ReplayState:
    """The state to show now. Times in milliseconds."""

    steps: int
    of: int
    milliseconds: float
    total: float
    tokens: int
    step: Step | None
    """The latest one."""


class Playback:
    """`shown` is the reply as it was after the steps played so far."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._record = reply.record
        self._timeline = Timeline(self._record)
        self._timeline.update()
        self._clock = 0.0
        self._pace = Pace()
        self.playing = False
        self.shown = self._fresh()

    @property
    def speed(self) -> float:
        """Times the measured pace."""
        return self._pace.speed(self._timeline.total)

    @property
    def pace(self) -> str:
        """The same in words."""
        return self._pace.words(self._timeline.total)

    @property
    def ended(self) -> bool:
        return self._steps == self._timeline.steps

    @property
    def moment(self) -> ReplayState:
        steps = self._steps
        return ReplayState(
            steps,
            self._timeline.steps,
            min(self._clock, self._timeline.total),
            self._timeline.total,
            self._timeline.tokens_after(steps),
            self._record.steps[steps - 1] if steps else None,
        )

    @property
    def _steps(self) -> int:
        return len(self.shown.steps)

    def toggle(self) -> None:
        """Play, from the start when at the end; or pause."""
        if not self.playing and self.ended:
            self.seek(0)
        self.playing = not self.playing

    def advance(self, seconds: float) -> None:
        """Let so much time pass for the viewer; paused, nothing moves."""
        if not self.playing:
            return
        self._clock = min(self._clock + 1000 * seconds * self.speed, self._timeline.total)
        self._show(self._timeline.steps_at(self._clock))
        self.playing = not self.ended

    def seek(self, steps: int) -> None:
        """Go to the moment when `steps` steps were done, or to the nearest end."""
        steps = max(0, min(steps, self._timeline.steps))
        self._clock = self._timeline.end_of(steps)
        self._show(steps)

    def move(self, by: int) -> None:
        """Pause and go some steps on or back."""
        self.playing = False
        self.seek(self._steps + by)

    def faster(self, by: int) -> None:
        """The next higher paces, or lower ones."""
        self._pace.faster(by)

    def _fresh(self) -> Reply:
        """The reply as it was before its first step."""
        reply = Reply(0, self._reply.name, self._reply.sampling, self._record.first)
        reply.started(Started(0, 0, 0, reply.seed, self._record.first, self._reply.beginning))
        return reply

    def _show(self, steps: int) -> None:
        """Play up to step `steps`, from the start where that is behind."""
        if steps < self._steps:
            self.shown = self._fresh()
        changes = self._record.changes[len(self.shown.record.changes) :]
        for number in range(self._steps, steps):
            while changes and changes[0][0] <= number:
                self.shown.changed(changes.pop(0)[1])
            self.shown.step(self._record.steps[number])
