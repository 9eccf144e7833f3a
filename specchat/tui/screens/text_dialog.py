"""The base of dialogs that are text to read."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from specchat.tui.screens.dialog import Dialog
from specchat.tui.widgets.plain import SOURCES, Plain


class TextPane(Plain):
    """Drawn anew by its dialog when the width changes."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key", "quiet", "head", "good", "bad", *SOURCES}

    def on_resize(self) -> None:
        assert isinstance(self.screen, TextDialog)
        self.show(Content("\n").join(self.screen.rows(self.content_size.width)), layout=True)


class TextDialog(Dialog[None]):
    """Subclasses give the rows."""

    CSS_PATH = "text_dialog.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,enter", "close", "Close", show=False)]

    def rows(self, width: int) -> Sequence[Content]:
        """The text in rows of at most `width` cells."""
        raise NotImplementedError

    def compose_content(self) -> ComposeResult:
        yield TextPane()
