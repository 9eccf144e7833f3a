"""Earlier prompts, searched by the words in them."""

from textual.app import ComposeResult
from textual.content import Content

from specchat.clean import one_line
from specchat.tui.history import PromptHistory
from specchat.tui.screens.filter import FilterDialog
from specchat.tui.text.lines import styled
from specchat.tui.widgets.plain import Plain

_SHOWN = 100
"""Prompts that are listed at once; words narrow them down."""


class HistoryScreen(FilterDialog[int]):
    """Its entries are the prompts' numbers."""

    DIALOG_TITLE = "earlier prompts"
    DIALOG_HINT = "type to search · enter takes one · esc closes"

    def __init__(self, history: PromptHistory) -> None:
        super().__init__()
        self._history = history

    def compose_content(self) -> ComposeResult:
        yield from super().compose_content()
        yield Plain(id="found")

    def find(self, query: str) -> list[tuple[int, Content]]:
        found = self._history.search(query, _SHOWN)
        words = "no prompt has these words" if query.strip() else "no prompt was sent yet"
        if found:
            words = f"the latest {_SHOWN}" if len(found) == _SHOWN else f"{len(found)} prompt{'s' * (len(found) > 1)}"
        self.query_one("#found", Plain).show(words)
        return [(number, styled(one_line(prompt, 300))) for number, prompt in found]
