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
CORNERS = 6
"""Cells of the box's edge that the hint leaves free."""


class Dialog(ModalScreen[Result], Generic[Result]):
    """A box in the middle; subclasses give its content."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", show=False, priority=True),
        *(Binding(keys, f"scroll('{way}')", show=False) for keys, way in _SCROLLING.items()),
    ]
    DIALOG_TITLE = ""
    DIALOG_HINT = "esc closes"
    """Words about keys, between " · "; where not all have room, those before the last are left out."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog", can_focus=False) as box:
            box.border_title = Content(self.DIALOG_TITLE)
            yield from self.compose_content()
        self.show_hint(self.DIALOG_HINT)

    def compose_content(self) -> ComposeResult:
        """The widgets in the box."""
        raise NotImplementedError

    def show_hint(self, hint: str) -> None:
        """Say what keys do, as much as there is room for."""
        self._hint = hint
        self.call_after_refresh(self._fit_hint)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit_hint)

    def _fit_hint(self) -> None:
        for box in self.query("#dialog"):
            words, room = self._hint.split(" · "), box.outer_size.width - CORNERS
            while len(words) > 1 and len(" · ".join(words)) > room:
                del words[-2]
            box.border_subtitle = Content(" · ".join(words))

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
