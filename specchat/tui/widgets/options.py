"""Lists to choose from."""

from collections.abc import Iterable
from typing import ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option


class Options(OptionList):
    """Textual's, which cannot turn a page before it has rows on the screen. Space chooses as enter does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "select", "Select", show=False)]

    def _move_page(self, direction: Literal[-1, 1]) -> None:
        if self.scrollable_content_region:
            super()._move_page(direction)

    def move(self, by: int, among: int) -> None:
        """Mark another of the first `among` options, so many below (above: negative), or the one at the end."""
        if self.highlighted is not None:
            self.highlighted = min(max(self.highlighted + by, 0), among - 1)

    def refill(self, options: Iterable[Option], highlighted: int | None) -> None:
        """List other options with the rows in view where they are, as far as the marked one is among them."""
        top = self.scroll_y
        self.set_options(options)
        self.highlighted = highlighted
        self.scroll_to(y=top, animate=False, force=True, immediate=True)
        self.scroll_to_highlight()

    def scroll_to_highlight(self, top: bool = False) -> None:
        """Also scroll the dialog that the list is in, where that has no room for all of it."""
        super().scroll_to_highlight(top)
        self.call_after_refresh(self.uncover)

    def uncover(self) -> None:
        if self.highlighted is None or not self.is_attached or not isinstance(self.parent, Widget):
            return
        place = self.virtual_region
        top = self._index_to_line.get(self.highlighted, 0) - self.scroll_offset.y
        row = Region(place.x, place.y + top, place.width, self._heights.get(self.highlighted, 1))
        self.parent.scroll_to_region(row.intersection(place), animate=False)
