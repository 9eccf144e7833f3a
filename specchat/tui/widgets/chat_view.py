"""The rows of a chat on the screen: scrolled and followed. Only rows near what is read are laid out."""

from functools import partial
from typing import ClassVar

from textual.content import Content
from textual.geometry import Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from specchat.chat.tree import Conversation
from specchat.tui.keys import Keys
from specchat.tui.text.chat_rows import ChatRows
from specchat.tui.text.heat import Stretch
from specchat.tui.text.lines import TextLine, joined, without_tabs
from specchat.tui.text.pictures import Graphics
from specchat.tui.text.window import Place
from specchat.tui.widgets.plain import SOURCES, TEXT
from specchat.tui.widgets.row_painter import RowPainter

WIDEST = 100
"""Cells of the widest text."""
_APART = 1
"""Cells that it keeps off the edges at least."""


class ChatView(ScrollView, can_focus=False):
    """Shows a conversation. Call `sync` after it changed; the end stays in view until the user scrolls up."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "role-you", "role-model", "band", "band-bar", "mark", "heat", "heat-low", *TEXT, *SOURCES,
        "cursor", "cursor-mark", "found", "found-current", "label", "token-cursor",
    }  # fmt: skip

    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False)
    """Grows with every line: a layout of the screen each time would cost more than the line itself."""

    def __init__(self, conversation: Conversation, keys: Keys) -> None:
        super().__init__()
        self._unfolded: set[str] = set()
        """Keys of replies whose reasoning is shown, and of files whose text is."""
        others = " ".join(filter(None, map(keys.first, ("previous-version", "next-version"))))
        self._rows_of = partial(ChatRows, unfolded=self._unfolded, version_keys=others)
        self.chat_rows = self._rows_of(conversation)
        self.cursor = 0
        """The row under the cursor; it shows while the view has the focus."""
        self._following = True
        self._syncing = False
        self._laid_out_at = 0
        self._rows = self.chat_rows.rows
        """The rows of the last layout. Going to a place far away makes others."""
        self._painter = RowPainter(self, self._get_style)

    # What is shown

    @property
    def token_view(self) -> bool:
        return self.chat_rows.token_view

    @property
    def following(self) -> bool:
        """True if the end is kept in view."""
        return self._following

    @property
    def text(self) -> str:
        """All text laid out, as it would be copied."""
        return joined([line for line, _ in self.chat_rows.rows])

    def draw_pictures_by(self, graphics: Graphics) -> None:
        self._rows_of = partial(self._rows_of, graphics=graphics)
        self.show(self.chat_rows.conversation)

    def show(self, conversation: Conversation, *, token_view: bool | None = None) -> None:
        """Show another conversation, or the same one differently; what was being read stays in view."""
        place, cursor = self._place(), self.chat_rows.place(self.cursor)
        tokens = self.token_view if token_view is None else token_view
        self.chat_rows = self._rows_of(conversation, token_view=tokens)
        self._following = True
        self._lay_out(place, cursor)

    def sync(self) -> None:
        """Take in what changed in the last turn, and new turns."""
        if self.chat_rows.stale:
            self.show(self.chat_rows.conversation)
            return
        changed, grown = self.chat_rows.sync(self._text_width if self._known else 0)
        if grown:
            self._following = True
        if changed is not None:
            self._forget(changed)
            self._resized(changed)
        elif grown:
            self.follow()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._following = True
        if not self.chat_rows.at_end:
            self._lay_out(None)
        self._to_end()

    def stretch(self) -> Stretch | None:
        """The lowest reply on the screen, as far as it is there; None without one."""
        top, window = round(self.scroll_y), self.chat_rows.window
        found: Stretch | None = None
        for row in range(min(top + self.size.height, len(window.rows)) - 1, top - 1, -1):
            at = window.section_at(row)
            section = window.sections[at[0]] if at else None
            if at is None or section is None or section.reply is None:
                continue
            if found is not None and section.reply is not found.reply:
                break
            rows, length = len(section.lines(self._text_width)), section.end - section.start
            start = section.start + length * at[1] // rows
            end = found.end if found else section.start + length * (at[1] + 1) // rows
            found = Stretch(section.reply, start, max(end, start + 1))
        return found

    # Layout

    def _centre(self) -> None:
        """Keep the text as wide as it reads well, in the middle of what is wider."""
        spare = max(self.region.width - self.scrollbar_size_vertical - WIDEST - self._beside, 2 * _APART)
        self.styles.padding = (0, spare // 2, 0, spare - spare // 2)

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _beside(self) -> int:
        """Cells right of the text: the cursor's mark and the heat, which the token view has step by step elsewhere."""
        return 1 if self.token_view else 2

    @property
    def _known(self) -> bool:
        """True if there is a width to lay out at."""
        return bool(self._width or self._laid_out_at)

    @property
    def _text_width(self) -> int:
        """Width of the rows; while the view is hidden its last one, so that the place is found again."""
        return max(self._width - self._beside, 8) if self._width else self._laid_out_at or 8

    def _place(self) -> Place | None:
        """The place at the top of the screen, None while the end is followed."""
        return None if self._following else self.chat_rows.place(round(self.scroll_y))

    def _lay_out(self, place: Place | None, cursor: Place | None = None) -> None:
        """Start again at the current width, with `place` at the top where there is one."""
        width = self._laid_out_at = self._text_width if self._known else 0
        row = self.chat_rows.row_at(place, width, anew=True) if place else None
        if row is None:
            self.chat_rows.open_end(width)
        self._following = row is None
        at = self.chat_rows.laid_out_at(cursor, width) if cursor and width else None
        self.cursor = len(self.chat_rows.rows) - 1 if at is None else at
        self.relaid()
        if row is not None:
            self.scroll_to(y=row, animate=False, immediate=True)

    def relaid(self) -> None:
        """The rows are others now: nothing that was drawn is right any more."""
        self._painter.drawn.clear()
        self.screen.clear_selection()
        self._resized()

    def _forget(self, changed: int) -> None:
        """Rows from `changed` on must be drawn again."""
        for stale in [row for row in self._painter.drawn if row >= changed]:
            del self._painter.drawn[stale]

    def _extend_up(self) -> None:
        """Lay out more rows above, keeping what is on the screen where it is."""
        if added := self.chat_rows.extend(self._text_width):
            self._painter.drawn.clear()
            self.screen.clear_selection()
            self.cursor += added
            self._resized(shift=added)

    def _extend_down(self) -> None:
        before = len(self.chat_rows.rows)
        if self.chat_rows.extend_below(self._text_width):
            self._resized(before)

    def _resized(self, changed: int = 0, shift: int = 0) -> None:
        """Rows from `changed` on are new, and `shift` rows came in above what is on the screen."""
        self._syncing, self._rows = True, self.chat_rows.rows
        before, at = self.scroll_y, self.scroll_y + shift
        size = Size(self._width, len(self.chat_rows.rows))
        was_last = self.cursor >= self.virtual_size.height - 1
        if size != self.virtual_size:
            self.virtual_size = size
            self.vertical_scrollbar.window_virtual_size = size.height
            self.vertical_scrollbar.refresh()
        if self._following:
            if was_last:
                self.cursor = size.height - 1
            self._to_end()
        elif shift:
            self.set_scroll(None, at)
            self.scroll_target_y = at
        else:
            self.scroll_y = self.validate_scroll_y(self.scroll_y)
        self.cursor = max(min(self.cursor, size.height - 1), 0)
        self._syncing = False
        top = round(self.scroll_y)
        if self.scroll_y != before or changed <= top:
            self.refresh()
        elif changed < top + self.size.height:
            self.refresh_lines(changed, top + self.size.height - changed)

    def _to_end(self) -> None:
        self._syncing = True
        self.scroll_end(animate=False, immediate=True, x_axis=False)
        self._syncing = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._syncing:
            return
        near = self.size.height
        self._following = new_value >= self.max_scroll_y - 0.5 and self.chat_rows.at_end
        if new_value < old_value and new_value < near and not self.chat_rows.at_start:
            self.call_after_refresh(self._extend_up)
        elif new_value > old_value and new_value > self.max_scroll_y - near and not self.chat_rows.at_end:
            self.call_after_refresh(self._extend_down)

    def on_resize(self) -> None:
        if not self._width:
            return
        self._centre()
        if self._laid_out_at == self._text_width:
            self._painter.drawn.clear()
            self._resized()
            return
        self._lay_out(self._place(), self.chat_rows.place(self.cursor))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._painter.forget()

    # Rendering

    def render_line(self, y: int) -> Strip:
        row = round(self.scroll_y) + y
        if row >= len(self.chat_rows.rows):
            return Strip.blank(self._width, self._painter.background)
        selection = self.text_selection
        plain = selection is None and not (self.has_focus and row == self.cursor)
        strip = self._painter.drawn.get(row) if plain else None
        if strip is None:
            strip = self._strip(row, selection)
            if plain:
                self._painter.drawn[row] = strip
        return strip

    def decorated(self, row: int, content: Content) -> Content:
        """A row as it is drawn, with marks of the moment."""
        del row
        return content

    def _strip(self, row: int, selection: Selection | None) -> Strip:
        line, heat = self.chat_rows.rows[row]
        content = self.decorated(row, without_tabs(line.content))
        if selection is not None and (span := selection.get_span(row)) is not None:
            start, end = span
            style = self.screen.get_visual_style("screen--selection")
            content = content.stylize(style, start, len(content) if end == -1 else end)
        return self._painter.paint(
            row,
            content,
            heat,
            width=self._width,
            beside=self._beside,
            band=line.band,
            cursor=self.has_focus and row == self.cursor,
        )

    # Selection

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        chosen: list[TextLine] = []
        for row, (line, _) in enumerate(self.chat_rows.rows):
            span = selection.get_span(row)
            if span is None or not line.copied:
                continue
            last = len(line.content) if line.end is None else line.end
            start = max(span[0], line.start)
            end = last if span[1] == -1 else min(span[1], last)
            chosen.append(
                TextLine(Content(line.content.plain[start:end]), soft=line.soft and end == last, glue=line.glue)
            )
        return (joined(chosen), "\n") if chosen else None

    def selection_updated(self, selection: Selection | None) -> None:
        self._painter.drawn.clear()
        self.refresh()
