"""Text that is never markup."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.content import Content
from textual.widgets import Static

from specchat.chat.sources import LEGEND
from specchat.clean import clean

SOURCES = frozenset(source.style.removeprefix(".") for source in LEGEND)
"""Component classes of widgets that show where tokens came from; screens/hidden.tcss has their looks."""

TEXT = {
    "box", "box-title", "box-button", "hint", "thought", "failed", "footer",
    "code-comment", "code-keyword", "code-string", "code-number", "code-name", "code-builtin", "code-removed",
    "md-strong", "md-em", "md-strike", "md-link", "md-url", "md-code", "md-math", "md-h1", "md-h3", "md-bullet",
    "md-quote-bar",
}  # fmt: skip
"""Component classes of widgets that show the text of replies; screens/hidden.tcss has their looks."""


class Plain(Static):
    """A Static for text from anywhere: strings are cleaned and shown literally."""

    def __init__(self, content: str | Content = "", *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(_content(content), markup=False, id=id, classes=classes)

    def show(self, content: str | Content, *, layout: bool = False) -> None:
        """Replace the content. `layout` only where the size may change: it costs a pass over the whole screen."""
        if layout:  # where one is due already, Textual would take the size that it knows for the new content's
            self._box_model_cache.clear()
        self.update(_content(content), layout=layout)


class FactRows(Plain):
    """Rows of names and words about something."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"quiet", "head", "bad"}

    def show_rows(self, rows: Callable[[int], Iterable[Content]]) -> None:
        """Show the rows for its width in cells."""
        self.show(Content("\n").join(rows(max(self.content_size.width, 20))), layout=True)


def _content(content: str | Content) -> Content:
    return Content(clean(content)) if isinstance(content, str) else content
