"""Two replies to one prompt by two pairs, side by side or one above the other, to keep one."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content

from specchat import figures
from specchat.chat.turn import Reply
from specchat.service.two_replies import TwoReplies
from specchat.tui.screens.board import GAP, Board, side_by_side
from specchat.tui.session import AppSession
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.text.turn import FootView, MarkdownView

_BESIDE = 90
"""Cells from which the replies stand side by side: those in a window of 100."""


class _Side:
    """A reply as rows."""

    def __init__(self, reply: Reply, *, unfolded: bool) -> None:
        self._view = MarkdownView(reply, unfolded=unfolded)
        self._foot = FootView()
        self.of = reply, reply.rewritten

    def rows(self, width: int) -> list[Content]:
        self._view.update()
        sections = [*self._view.frozen, *self._view.open(), *self._foot.update(self.of[0])]
        return [line.content for section in sections for line in section.lines(width)]


class CompareScreen(Board):
    """Shows a comparison, and has its second reply begun."""

    DIALOG_TITLE = "two models"
    DIALOG_HINT = "1 2 keeps that reply · ↑ ↓ scroll · enter unfolds thoughts · esc keeps both"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "keep(0)", "Keep the first", show=False),
        Binding("2", "keep(1)", "Keep the second", show=False),
        Binding("enter,z", "unfold", "Unfold thoughts", show=False),
    ]

    def __init__(self, session: AppSession, comparison: TwoReplies) -> None:
        super().__init__()
        self._session = session
        self._comparison = comparison
        self._sides: dict[int, _Side] = {}
        self._unfolded = False
        self._top = 0
        """Rows above those in view, of both replies."""
        self._room, self._most = 1, 0
        """Rows of text in view, and those that can be above them."""

    # Board

    @property
    def moving(self) -> bool:
        return True

    def advance(self, seconds: float) -> None:
        """Begin the second reply once the first has ended. Other events go to the session."""
        if self._session.conversation is not self._comparison.chat:
            self.dismiss()
        self._comparison.look()

    def rows(self, width: int, height: int) -> list[Content]:
        wide = width >= _BESIDE
        room = (width - len(GAP)) // 2 if wide else width
        each = height if wide else height // 2
        texts = [self._text(number, room) for number in (0, 1)]
        self._room = max(each - 2, 1)
        self._most = max(0, max(map(len, texts)) - self._room)
        self._top = min(self._top, self._most)
        first, second = (self._pane(number, text, room) for number, text in enumerate(texts))
        return [*side_by_side(first, second, room)] if wide else [*first, *second]

    def _text(self, number: int, width: int) -> list[Content]:
        replies = self._comparison.replies
        if number >= len(replies):
            words = self._comparison.refusal or "begins when the first reply has ended"
            return list(styled(words, ".hint").wrap(width))
        reply = replies[number]
        side = self._sides.get(number)
        if side is None or side.of != (reply, reply.rewritten):
            side = self._sides[number] = _Side(reply, unfolded=self._unfolded)
        return side.rows(width)

    def _pane(self, number: int, text: list[Content], width: int) -> list[Content]:
        """The pair's name, and the rows of its reply that are in view."""
        shown = text[self._top : self._top + self._room]
        name = styled(f"{number + 1} ", ".key") + styled(self._comparison.names[number], ".title")
        if below := max(len(text) - self._top - self._room, 0):
            name += styled(f" · {figures.of(below, 'row')} below", ".label")
        rows = [name, *shown, *[EMPTY] * (self._room - len(shown) + 1)]
        return [row.truncate(width, ellipsis=True) for row in rows]

    # Keys

    def action_scroll(self, way: str) -> None:
        page = max(self._room - 2, 1)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "home": -self._top, "end": self._most}
        self._top = max(0, min(self._top + steps[way], self._most))
        self.draw()

    def action_unfold(self) -> None:
        self._unfolded = not self._unfolded
        self._sides.clear()
        self.draw()

    def on_click(self, event: events.Click) -> None:
        if "fold" in event.style.meta:
            self.action_unfold()

    def action_keep(self, number: int) -> None:
        if self._comparison.keep(number):
            self.dismiss()
