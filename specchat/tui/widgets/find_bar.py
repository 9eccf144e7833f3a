"""One row to find words in the chat."""

from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from specchat.dataclass import dataclass
from specchat.tui.widgets.line_input import LineInput
from specchat.tui.widgets.plain import Plain


class FindBar(Horizontal):
    """Posts what is looked for as it is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "step(1)", "Next match", show=False),
        Binding("up", "step(-1)", "Previous match", show=False),
    ]

    @dataclass
    class Changed(Message):
        """Something else is looked for."""

        query: str

    @dataclass
    class Stepped(Message):
        """The next (1) or previous (-1) match is wanted."""

        direction: Literal[-1, 1]

    class Accepted(Message):
        """Enter was pressed: go on in the transcript."""

    def compose(self) -> ComposeResult:
        yield Plain("find ", id="find-word")
        yield LineInput(id="find-input")
        yield Plain("", id="find-count")

    @property
    def query_text(self) -> str:
        return self.query_one(Input).value

    def start(self, query: str = "") -> None:
        """Take the focus, with `query` or what was looked for last selected."""
        box = self.query_one(Input)
        box.value = query or box.value
        self.screen.set_focus(box)
        box.select_all()

    def show_count(self, words: str) -> None:
        self.query_one("#find-count", Plain).show(words, layout=True)

    def action_step(self, direction: Literal[-1, 1]) -> None:
        self.post_message(self.Stepped(direction))

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Accepted())
