"""A dialog that asks for one line of text."""

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input

from specchat.clean import one_line
from specchat.tui.screens.dialog import Dialog
from specchat.tui.widgets.line_input import LineInput


class AskScreen(Dialog[str | None]):
    """Gives the text, None when closed."""

    DIALOG_HINT = "enter takes it · esc closes"

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self.DIALOG_TITLE = title
        self._text = one_line(text)

    def compose_content(self) -> ComposeResult:
        yield LineInput(self._text)

    def on_mount(self) -> None:
        box = self.query_one(Input)
        box.focus()
        box.select_all()

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
