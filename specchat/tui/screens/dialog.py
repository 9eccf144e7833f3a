"""The base of the modal screens: a titled box that escape closes."""

from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

Result = TypeVar("Result")


_SCROLLING = {
    "up,k": "up",
    "down,j": "down",
    "pageup": "page_up",
    "pagedown,space": "page_down",
    "home,g": "home",
    "end,G": "end",
}
"""Keys that scroll the box, where what has the focus does not take them."""


class Dialog(ModalScreen[Result], Generic[Result]):
    """A box in the middle; subclasses give its content."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", show=False, priority=True),
        *(Binding(keys, f"scroll('{way}')", show=False) for keys, way in _SCROLLING.items()),
    ]
    DIALOG_TITLE = ""
    DIALOG_HINT = "esc closes"

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog", can_focus=False) as box:
            box.border_title = Content(self.DIALOG_TITLE)
            box.border_subtitle = Content(self.DIALOG_HINT)
            yield from self.compose_content()

    def compose_content(self) -> ComposeResult:
        """The widgets in the box."""
        raise NotImplementedError

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close, once: of two keys that come together the second would close what is behind."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def action_scroll(self, way: str) -> None:
        box = self.query_one("#dialog", VerticalScroll)
        getattr(box, f"scroll_{way}")(animate=False)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy_text(self) -> None:
        """ctrl+c: copy what is selected, else close."""
        if self.get_selected_text() is None:
            self.action_close()
        else:
            super().action_copy_text()
