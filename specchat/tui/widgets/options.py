"""Lists to choose from."""

from typing import Literal

from textual.widgets import OptionList


class Options(OptionList):
    """Textual's, which cannot turn a page before it has rows on the screen."""

    def _move_page(self, direction: Literal[-1, 1]) -> None:
        if self.scrollable_content_region:
            super()._move_page(direction)
