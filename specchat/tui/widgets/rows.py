"""The single rows around the chat: header, status and key hints."""

from typing import ClassVar

from textual.content import Content

from specchat.tui.actions.action import Where
from specchat.tui.actions.keys import Keys
from specchat.tui.actions.table import ACTIONS
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.text.sources import REJECTED, SOURCES
from specchat.tui.widgets.plain import Plain


class TwoSided(Plain):
    """One row with text at both ends; the left one is cut first, unless it is to be read whole."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"strong", "quiet", "good", "bad"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._left = self._right = EMPTY
        self._whole = False

    def show_sides(self, left: Content, right: Content, *, whole: bool = False) -> None:
        """With `whole` the right one is left out where there is no room for both."""
        if (left.markup, right.markup, whole) == (self._left.markup, self._right.markup, self._whole):
            return
        self._left, self._right, self._whole = left, right, whole
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        width = self.content_size.width
        crowded = self._left.cell_length + 2 + self._right.cell_length > width
        right = EMPTY if self._whole and crowded else self._right.truncate(max(width, 0), ellipsis=True)
        room = width - right.cell_length - (2 if right else 0)
        left = self._left.truncate(room, ellipsis=True) if room > 0 else EMPTY
        self.show(left + " " * max(width - left.cell_length - right.cell_length, 0) + right)


class Hints(Plain):
    """The keys worth knowing now, as many as fit."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key", "word"}

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._keys = keys
        self._where: Where = "prompt"

    def show_for(self, where: Where) -> None:
        """Show the keys of another place, those that work anywhere in the prompt's."""
        if where != self._where:
            self._where = where
            self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        width = self.content_size.width
        wanted = (self._where, "anywhere") if self._where == "prompt" else (self._where,)
        row = EMPTY
        for action in ACTIONS:
            if action.hint and action.where in wanted and (key := self._keys.first(action)):
                entry = styled(key, ".key") + styled(f" {action.hint}", ".word")
                wider = row + ("   " if row else "") + entry
                if wider.cell_length > width:
                    break
                row = wider
        self.show(row)


class Inspector(Plain):
    """The token under the cursor, in the legend's place."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "label", "value",
        "spec-draft", "spec-lookup", "spec-swift", "spec-target", "spec-bonus", "spec-plain", "spec-rejected",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._told = ""

    def tell(self, words: Content) -> None:
        """Show `words`; nothing is laid out where they are shown already."""
        if words.markup != self._told:
            self._told = words.markup
            self.show(words, layout=True)


class Legend(Plain):
    """What the colours and styles of the token view mean."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "spec-draft", "spec-lookup", "spec-swift", "spec-target", "spec-bonus", "spec-plain", "spec-rejected",
    }  # fmt: skip

    def on_mount(self) -> None:
        entries = [styled(source.words, source.style) for source in (*SOURCES.values(), REJECTED)]
        self.show(Content("  ").join(entries), layout=True)
