"""Asks before code of a reply is run: all of it is shown."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from specchat.sandbox.running import OUTPUT, SECONDS
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import EMPTY, hang, styled
from specchat.tui.widgets.plain import FactRows


class RunScreen(Dialog[bool]):
    """Gives True for a yes. Enter is none: it may be meant for what was there before."""

    DIALOG_TITLE = "run this code?"
    DIALOG_HINT = "y runs it · esc does not"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "agree", "Run", show=False)]

    def __init__(self, language: str, code: str) -> None:
        super().__init__()
        self._bounds = styled(
            f"{language}, without your files and without a network, for {SECONDS:.0f} seconds and {OUTPUT // 1000} kB "
            "of output, which goes along with the next prompt.",
            ".quiet",
        )
        self._code = styled(code.rstrip("\n"))

    def compose_content(self) -> ComposeResult:
        yield FactRows()

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self.query_one(FactRows).show_rows, self._rows)

    def _rows(self, width: int) -> list[Content]:
        return [row.content for part in (self._bounds, EMPTY, self._code) for row in hang(part, width)]

    def action_agree(self) -> None:
        self.dismiss(True)
