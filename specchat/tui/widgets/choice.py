"""One of a few values, on one row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive

from specchat.clean import one_line
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.widgets.plain import Plain


class Choice(Plain, can_focus=True):
    """Left and right move between the values, a click picks one. Where not all fit, the row moves with the choice, and
    says that there is more."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"chosen", "other"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "Previous", show=False),
        Binding("right,space,enter", "move(1)", "Next", show=False),
    ]
    value: reactive[str] = reactive("", init=False)

    @dataclass
    class Changed(Message):
        """Another value was chosen."""

        choice: "Choice"
        value: str

        @property
        def control(self) -> "Choice":
            return self.choice

    def __init__(self, values: Sequence[str], value: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._values = list(values)
        self._first = 0
        self.set_reactive(Choice.value, value)

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._first = 0
        self._fill()

    def watch_value(self, value: str) -> None:
        self._fill()
        self.post_message(self.Changed(self, value))

    def action_move(self, by: int) -> None:
        at = self._values.index(self.value) if self.value in self._values else 0
        self.value = self._values[(at + by) % len(self._values)]

    def on_click(self, event: events.Click) -> None:
        start = 0
        for value in self._values[self._first :]:
            end = start + len(one_line(value)) + 2
            if start <= event.x < end:
                self.value = value
                return
            start = end

    def _fill(self) -> None:
        cells = [self._cell(value) for value in self._values]
        at = self._values.index(self.value) if self.value in self._values else 0
        self._first = min(self._first, at)
        while self.size.width and sum(cell.cell_length for cell in cells[self._first : at + 1]) > self.size.width - 1:
            self._first += 1
        row = EMPTY.join(cells[self._first :])
        width = self.size.width
        if width and self._first:
            row = styled("‹", ".other") + row[1:]
        if width and row.cell_length > width:
            row = row.truncate(width - 1) + styled("›", ".other")
        self.show(row)

    def _cell(self, value: str) -> Content:
        chosen = value == self.value
        text = one_line(value)
        return styled(f"[{text}]" if chosen else f" {text} ", ".chosen" if chosen else ".other")
