"""The base of dialogs with a box to type in and a list of what fits."""

from collections.abc import Sequence
from typing import ClassVar, Generic

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specchat.tui.screens.dialog import Dialog, Result
from specchat.tui.widgets.line_input import LineInput
from specchat.tui.widgets.options import Options


class FilterDialog(Dialog[Result | None], Generic[Result]):
    """Gives the entry chosen, None when closed. Subclasses find entries."""

    CSS_PATH = "filter.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]
    NEWEST_LAST: ClassVar = False
    """True if the last entry is marked at first, until something is typed."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[Result] = []

    def find(self, query: str) -> Sequence[tuple[Result, Content]]:
        """The entries that fit, and how they are listed."""
        raise NotImplementedError

    def compose_content(self) -> ComposeResult:
        yield LineInput()
        yield Options(markup=False)

    def on_mount(self) -> None:
        self._list("")
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._list(event.value)

    def _list(self, query: str) -> None:
        found, options = self.find(query), self.query_one(OptionList)
        self._entries = [entry for entry, _ in found]
        options.set_options([Option(row) for _, row in found])
        last = self.NEWEST_LAST and not query.strip()
        options.highlighted = (len(found) - 1 if last else 0) if found else None

    def action_move(self, by: int) -> None:
        self.query_one(Options).move(by, len(self._entries))

    @on(Input.Submitted)
    def _entered(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self.dismiss(self._entries[at])

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._entries[event.option_index])
