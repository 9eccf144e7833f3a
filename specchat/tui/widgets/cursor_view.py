"""A cursor in the rows of a chat, moved by rows, messages and pages."""

from collections.abc import Mapping
from typing import Any

from textual.content import Content
from textual.message import Message

from specchat.tui.text.chat_rows import Said
from specchat.tui.text.labels import links_in
from specchat.tui.text.lines import TextLine
from specchat.tui.text.thoughts import fold_of
from specchat.tui.widgets.chat_view import ChatView

_MARGIN = 2
"""Rows kept in view above and below the cursor where there are any."""


class CursorView(ChatView, can_focus=True):
    """The cursor shows while the view has the focus. Off the last row nothing is followed, on it the end is."""

    FOCUS_ON_CLICK = False

    class CursorMoved(Message):
        """Something else is under the cursor, or the focus came or went."""

    def arrived(self) -> None:
        """The cursor is somewhere else: for what depends on where it is."""

    def decorated(self, row: int, content: Content) -> Content:
        content, line = super().decorated(row, content), self.chat_rows.rows[row][0]
        if line.more is not None and self.has_focus and self.chat_rows.said_at(row) == self.said:
            return line.more
        return content

    # Moving

    def on_focus(self) -> None:
        top = round(self.scroll_y)
        rows = len(self.chat_rows.rows)
        if self._following or not top <= self.cursor < top + self.size.height:
            self.cursor = max(min(top + self.size.height, rows) - 1, 0)
        self.arrived()
        self.moved()

    def on_blur(self) -> None:
        self._following = self._at_bottom
        self.moved()

    def move(self, rows: int) -> None:
        """Move the cursor, laying out what it comes to."""
        while self.cursor + rows < 0 and not self.chat_rows.at_start:
            self._extend_up()
        while self.cursor + rows >= len(self.chat_rows.rows) and not self.chat_rows.at_end:
            self._extend_down()
        self.go_to(self.cursor + rows)

    def move_pages(self, pages: float) -> None:
        rows = max(int(self.size.height * abs(pages)), 1)
        self.move(rows if pages > 0 else -rows)

    def go_to(self, row: int) -> None:
        """Put the cursor on `row` and bring it into view; at the end of the chat, follow it."""
        last = len(self.chat_rows.rows) - 1
        self.cursor = max(min(row, last), 0)
        self._following = False
        if self.cursor == last and self.chat_rows.at_end:
            self.follow()
        else:
            top, height = round(self.scroll_y), self.size.height
            margin = min(_MARGIN, (height - 1) // 2)
            y = min(max(top, self.cursor + margin - height + 1), self.cursor - margin)
            if y != top:
                self.scroll_to(y=max(y, 0), animate=False, immediate=True)
            self._following = False
        self.arrived()
        self.moved()

    def top(self) -> None:
        turns = self.chat_rows.conversation.turns
        if turns:
            self.go_to_said(Said(turns[0], "you"))
            self.go_to(0)

    def bottom(self) -> None:
        self.follow()
        self.go_to(len(self.chat_rows.rows) - 1)

    def go_to_said(self, said: Said, *, at_top: bool = True) -> None:
        """Put the cursor on the first row of a message, at the top of the screen if that is wanted."""
        self._arrive(self.chat_rows.row_of(said, self._text_width), at_top=at_top)

    def go_to_next_message(self, direction: int) -> None:
        row = self.chat_rows.next_message(self.cursor, direction, self._text_width)
        if row is None and direction > 0:
            self.bottom()
        else:
            self._arrive(row)

    def go_to_text(self, said: Said, offset: int) -> None:
        """Put the cursor on what shows a message's text from `offset` on."""
        self._arrive(self._row_of_text(said, offset))

    def _row_of_text(self, said: Said, offset: int) -> int | None:
        row = self.chat_rows.row_of(said, self._text_width, offset)
        if row is not None and (found := self.chat_rows.window.section_at(row)) is not None:
            section = self.chat_rows.window.sections[found[0]]
            length = max(section.end - section.start, 1)
            rows = len(section.lines(self._text_width))
            row += min(max(offset - section.start, 0) * rows // length, rows - 1)
        return row

    def _arrive(self, row: int | None, *, at_top: bool = False) -> None:
        if row is None:
            return
        if self.chat_rows.rows is not self._rows:
            self._following = False
            self.cursor = row
            self.relaid()
        if at_top:
            self.scroll_to(y=row, animate=False, immediate=True)
        self.go_to(row)

    def moved(self) -> None:
        """Draw the rows again and tell."""
        self._painter.drawn.clear()
        self.refresh()
        self.post_message(self.CursorMoved())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.has_focus and not self._syncing:
            top = round(new_value)
            at = max(min(self.cursor, top + self.size.height - 1), top)
            if at != self.cursor:
                self.cursor = at
                self.arrived()
                self.moved()

    def action_page_up(self) -> None:
        self.move_pages(-1)

    def action_page_down(self) -> None:
        self.move_pages(1)

    @property
    def _at_bottom(self) -> bool:
        return self.chat_rows.at_end and self.scroll_y >= self.max_scroll_y - 0.5

    # What is under the cursor

    @property
    def said(self) -> Said | None:
        """The message."""
        return self.chat_rows.said_at(self.cursor)

    @property
    def line(self) -> TextLine | None:
        rows = self.chat_rows.rows
        return rows[self.cursor][0] if self.cursor < len(rows) else None

    @property
    def on_fold(self) -> bool:
        """True if the row is one that folds reasoning or a file."""
        return self.line is not None and bool(fold_of(self.line))

    @property
    def on_versions(self) -> bool:
        """True if there are other versions of the message."""
        if (said := self.said) is None:
            return False
        return len(self.chat_rows.conversation.siblings(said.turn) if said.by == "you" else said.turn.replies) > 1

    @property
    def link(self) -> str:
        """The first web link in the row; empty without one."""
        links = links_in(self.line.content) if self.line else []
        return links[0][1] if links else ""

    def offset_at(self, row: int) -> tuple[Said, int] | None:
        """The message that `row` shows, and about where in its text."""
        said, found = self.chat_rows.said_at(row), self.chat_rows.window.section_at(row)
        if said is None or found is None:
            return None
        section = self.chat_rows.window.sections[found[0]]
        rows = max(len(section.lines(self._text_width)), 1)
        return said, section.start + (section.end - section.start) * found[1] // rows

    def place_in_words(self) -> dict[str, Any]:
        """The place at the top of the screen, to be saved; empty while the end is followed."""
        found = None if self._following else self.offset_at(round(self.scroll_y))
        return {"turn": found[0].turn.key, "by": found[0].by, "offset": found[1]} if found else {}

    def read_on(self, place: Mapping[str, Any]) -> None:
        """Go to a place that `place_in_words` gave, if it is there."""
        key, offset = place.get("turn"), place.get("offset")
        turn = next((turn for turn in self.chat_rows.conversation.turns if turn.key == key), None)
        if turn is not None and isinstance(offset, int):
            said = Said(turn, "you" if place.get("by") == "you" else "model")
            self._arrive(self._row_of_text(said, max(offset, 0)), at_top=True)

    # Folding

    def toggle_fold(self, row: int) -> None:
        """Fold or unfold what `row` does, else the reasoning of the reply there; the row stays on the screen."""
        said = self.chat_rows.said_at(row)
        if said is None:
            return
        place, y = self.chat_rows.place(row), row - round(self.scroll_y)
        key = fold_of(self.chat_rows.rows[row][0]) or (said.turn.reply.key if said.turn.reply else "")
        self._unfolded ^= {key}
        self.show(self.chat_rows.conversation)
        at = self.chat_rows.row_at(place, self._text_width) if place else None
        if at is not None:
            self.scroll_to(y=max(at - y, 0), animate=False, immediate=True)
            self.go_to(at)
        if not self.has_focus:
            self._following = self._at_bottom
