"""The list of choices above the prompt."""

from typing import ClassVar

from textual import events
from textual.content import Content
from textual.message import Message

from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.tui.composing.completion import Completion, Suggestion
from specchat.tui.text.lines import styled
from specchat.tui.widgets.plain import Plain

ROWS = 8
_LABEL = 200
"""Characters of a label that are shown at most."""


class Completions(Plain):
    """Shows a completion with one choice marked, or is hidden. It never has the focus: the prompt keeps it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"name", "letter", "quiet", "marked", "marked-quiet"}

    @dataclass
    class Picked(Message):
        """A choice was clicked."""

        choice: Suggestion

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self.completion: Completion | None = None
        """The candidates that are shown; None while the list is hidden."""
        self._at: int | None = None
        self._first = 0
        self._rows = ROWS

    @property
    def marked(self) -> Suggestion | None:
        return self.completion.choices[self._at] if self.completion and self._at is not None else None

    def open(self, completion: Completion, rows: int) -> None:
        """Show `completion` in at most `rows` rows."""
        self._rows = max(min(ROWS, rows - bool(completion.note) - (len(completion.choices) > ROWS)), 1)
        self.completion, self._first = completion, 0
        self._at = 0 if completion.eager else None
        self.display = True
        self._fill()

    def close(self) -> None:
        self.completion = None
        self.display = False

    def move(self, step: int) -> None:
        """Mark the next choice (1) or the one before (-1), around the ends."""
        if self.completion is not None:
            count = len(self.completion.choices)
            self._at = (0 if step > 0 else count - 1) if self._at is None else (self._at + step) % count
            self._first = min(max(self._first, self._at - self._rows + 1), self._at)
            self._fill()

    def on_resize(self) -> None:
        self._fill()

    def on_click(self, event: events.Click) -> None:
        if self.completion is not None:
            at = self._first + event.y
            if event.y < self._rows and at < len(self.completion.choices):
                self.post_message(self.Picked(self.completion.choices[at]))

    def _fill(self) -> None:
        completion = self.completion
        if completion is None:
            return
        width = self.content_size.width or self.app.size.width - 2
        shown = completion.choices[self._first : self._first + self._rows]
        labels = max(min(max(len(choice.label) for choice in completion.choices), width * 3 // 5), 1)
        rows = [self._row(choice, choice is self.marked, labels, width) for choice in shown]
        rest = len(completion.choices) - self._first - len(shown)
        count = f"{self._first + len(shown)} of {len(completion.choices)}" if rest > 0 or self._first else ""
        notes = [note for note in (count, completion.note) if note]
        rows += [styled(f"  {one_line(note)}", ".quiet") for note in notes]
        self.show(Content("\n").join(rows), layout=True)

    def _row(self, choice: Suggestion, marked: bool, labels: int, width: int) -> Content:
        style, quiet = (".marked", ".marked-quiet") if marked else (".name", ".quiet")
        label = styled(choice.label[:_LABEL].replace("\n", " "), style)
        if len(label) == len(choice.label):
            for place in choice.places:
                label = label.stylize(".letter", place, place + 1)
        row = styled("› " if marked else "  ", style) + label.truncate(labels, ellipsis=True).pad_right(
            max(labels - label.cell_length, 0)
        )
        row += styled("  " + one_line(choice.words) if choice.words else "", quiet)
        row = row.truncate(width, ellipsis=True)
        return row + styled(" " * (width - row.cell_length), quiet)
