"""The single rows around the chat: header, status and key hints."""

from collections.abc import Iterable
from typing import Any, ClassVar

from textual import events
from textual.content import Content
from textual.message import Message

from specchat.chat.sources import LEGEND
from specchat.chat.turn import Reply
from specchat.dataclass import dataclass
from specchat.tui.action import Action, When, Where
from specchat.tui.keys import Keys
from specchat.tui.text.inspect import inspected
from specchat.tui.text.lines import EMPTY, styled, tagged
from specchat.tui.text.tokens import Token
from specchat.tui.widgets.plain import SOURCES, Plain

_LEAST = 24
"""Cells that the left end of a row has, if it needs them, beside the right one in a shorter length."""


class TwoSided(Plain):
    """Text at both ends of a row; the left one is cut first, or has more rows where it is alone or to be read whole.

    The right one may be given in several lengths, the longest first: a shorter one leaves `_LEAST` cells for the left.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"strong", "quiet", "good", "bad"}

    def __init__(self, *, id: str | None = None, most: int = 1) -> None:
        """`most` is how many rows it may have."""
        super().__init__(id=id)
        self._most = most
        self._left = EMPTY
        self._rights: tuple[Content, ...] = (EMPTY,)
        self._shown: tuple[list[str], bool] = ([], False)
        self._whole = self._tall = False

    def show_sides(self, left: Content, *rights: Content, whole: bool = False) -> None:
        """With `whole` the right one is left out where there is no room for both."""
        shown = ([side.markup for side in (left, *rights)], whole)
        if shown != self._shown:
            self._shown, self._left, self._rights, self._whole = shown, left, rights, whole
            self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        width = self.content_size.width
        least = min(self._left.cell_length, _LEAST)
        chosen = next((one for one in self._rights if least + 2 + one.cell_length <= width), self._rights[-1])
        crowded = self._left.cell_length + (2 + chosen.cell_length if chosen else 0) > width
        right = EMPTY if self._whole and crowded else chosen.truncate(max(width, 0), ellipsis=True)
        room = width - right.cell_length - (2 if right else 0)
        tall, left = self._tall, self._left
        above: list[Content] = []
        while not right and room > 0 and left.cell_length > room and len(above) < self._most - 1:
            above.append(first := left.wrap(room)[0])
            left = left[len(first) + left.plain[len(first) :].startswith(" ") :]
        left = left.truncate(room, ellipsis=True) if room > 0 else EMPTY
        row = left + " " * max(width - left.cell_length - right.cell_length, 0) + right
        self._tall = bool(above)
        self.show(Content("\n").join([*above, row]), layout=tall or self._tall)


_MOMENTARY: tuple[When, ...] = ("in tokens", "on versions", "below")


def hinted(actions: Iterable[Action[Any]], here: Where, facts: frozenset[When]) -> list[Action[Any]]:
    """The actions worth a hint where the focus is `here` and `facts` are so: those of this place before those that
    work everywhere, and among them those of the moment first."""
    fitting = (action for action in actions if action.hint and action.where in (here, "anywhere"))
    return sorted(
        (action for action in fitting if action.when in facts),
        key=lambda action: (action.where == "anywhere", action.when not in _MOMENTARY),
    )


class Hints(Plain):
    """The keys worth knowing now, as many as fit. A click does what the key does."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key", "word"}

    @dataclass
    class Picked(Message):
        """The hint of the action with this id was clicked."""

        action: str

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._keys = keys
        self._for: tuple[Where, frozenset[When]] | None = None
        self._actions: list[Action[Any]] = []

    def show_for(self, here: Where, facts: frozenset[When]) -> None:
        """Show the keys for where the focus is and what is so; drawn only where that is something else than before."""
        if self._for != (here, facts):
            self._for, self._actions = (here, facts), hinted(self._keys.actions, here, facts)
            self._fill()

    def on_resize(self) -> None:
        self._fill()

    def on_click(self, event: events.Click) -> None:
        if action := event.style.meta.get("hint"):
            self.post_message(self.Picked(action))

    def _fill(self) -> None:
        width, editing = self.content_size.width, self._for is not None and "editing" in self._for[1]
        row = EMPTY
        for action in self._actions:
            hint = (action.hint_editing if editing else "") or action.hint
            if key := self._keys.first(action.id):
                entry = styled(key, ".key") + styled(f" {hint}", ".word")
                wider = row + ("   " if row else "") + tagged(entry, hint=action.id)
                if wider.cell_length > width:
                    break
                row = wider
        self.show(row)


class Inspector(Plain):
    """The token under the cursor, in the legend's place."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"label", "value", *SOURCES}

    def __init__(self) -> None:
        super().__init__()
        self._looked_at: tuple[Reply, Token] | None = None

    def look_at(self, reply: Reply, token: Token) -> None:
        """Tell of a token; there is more room where drafts are trees."""
        self._looked_at = reply, token
        self.set_class(reply.record.branched, "-trees")
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        if self._looked_at is not None:
            self.show(inspected(*self._looked_at, *self.content_size))


class Legend(Plain):
    """The meaning of the token view's colours and styles."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*SOURCES}

    def on_mount(self) -> None:
        entries = [styled(source.words, source.style) for source in LEGEND]
        self.show(Content("  ").join(entries), layout=True)
