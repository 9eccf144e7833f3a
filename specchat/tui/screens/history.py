"""Earlier prompts, searched by the words in them."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specchat.clean import one_line
from specchat.tui.history import PromptHistory
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import styled
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import Plain

_SHOWN = 100
"""Prompts that are listed at once; words narrow them down."""


class HistoryScreen(Dialog[int | None]):
    """Gives the number of the prompt chosen, None when closed."""

    CSS_PATH = "history.tcss"
    DIALOG_TITLE = "earlier prompts"
    DIALOG_HINT = "type to search · enter takes one · esc closes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(self, history: PromptHistory) -> None:
        super().__init__()
        self._history = history
        self._numbers: list[int] = []

    def compose_content(self) -> ComposeResult:
        search = Input(compact=True, select_on_focus=False)
        search.cursor_blink = False
        yield search
        yield Options(markup=False)
        yield Plain(id="found")

    def on_mount(self) -> None:
        self._list("")
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._list(event.value)

    def _list(self, query: str) -> None:
        found = self._history.search(query, _SHOWN)
        self._numbers = [number for number, _ in found]
        options = self.query_one(OptionList)
        options.set_options([Option(styled(one_line(prompt, 300))) for _, prompt in found])
        options.highlighted = 0 if found else None
        words = "no prompt has these words" if query.strip() else "no prompt was sent yet"
        if found:
            words = f"the latest {_SHOWN}" if len(found) == _SHOWN else f"{len(found)} prompt{'s' * (len(found) > 1)}"
        self.query_one("#found", Plain).show(words)

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            options.highlighted = min(max(options.highlighted + step, 0), options.option_count - 1)

    @on(Input.Submitted)
    def _entered(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self.dismiss(self._numbers[at])

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._numbers[event.option_index])
