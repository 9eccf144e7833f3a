"""Dialogs of what works beside the chat: sentences that are drawn anew while it is open."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.content import Content

from specchat.clean import one_line
from specchat.engine.hardware.free_memory import free_memory
from specchat.models import words
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import hang
from specchat.tui.widgets.plain import FactRows

_LONGEST = 400

Given = TypeVar("Given")


class BesideDialog(Dialog[Given]):
    """Shows `sentences` and a `table`; `count` may read the saved chats first."""

    EVERY_S: ClassVar = 0.4

    def compose_content(self) -> ComposeResult:
        yield FactRows()

    def on_mount(self) -> None:
        self.set_interval(self.EVERY_S, self.look)
        self.run_worker(self._counted, thread=True, exit_on_error=False)
        self.look()

    def on_resize(self) -> None:
        super().on_resize()
        self.look()

    def _counted(self) -> None:
        self.count()
        self.app.call_from_thread(self.look)

    def count(self) -> None:
        """Read the chats, in a thread of its own."""

    @property
    @abstractmethod
    def keys(self) -> str:
        """The keys that do something now, before the one that closes."""

    @abstractmethod
    def sentences(self) -> Iterator[str]:
        """The paragraphs to show."""

    def table(self, width: int) -> Iterator[Content]:
        """Lines below them, `width` cells wide."""
        del width
        yield from ()

    def look(self) -> None:
        """Draw what there is now."""
        if self.query(FactRows):  # else it is not there yet, or closed
            self.show_hint(f"{self.keys}esc closes")
            self.query_one(FactRows).show_rows(self._rows)

    def _rows(self, width: int) -> list[Content]:
        lines = [line.content for text in self.sentences() for line in hang(Content(one_line(text, _LONGEST)), width)]
        return [*lines, *self.table(width)]


def lack(memory: int) -> str:
    """A sentence where fewer bytes than `memory` are free; else empty."""
    free = free_memory()
    if free is None or memory <= free:
        return ""
    return f"Only {words.size(free)} are free. Close other programs, or choose a smaller pair."
