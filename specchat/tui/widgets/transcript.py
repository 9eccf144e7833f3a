"""The chat as rows of text. Only rows near the end are laid out; more follow when they are scrolled to."""

from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from specchat.chat.tree import Conversation, Turn
from specchat.tui.text.lines import Line, Section
from specchat.tui.text.markdown import is_web_link
from specchat.tui.text.turn import TurnView
from specchat.tui.text.window import Place, Window

_TURNS = 30
"""Turns that are taken in at a time."""

_HEAT = ((0.75, "█"), (0.45, "▐"), (0.0, "▕"))


class Transcript(ScrollView, can_focus=False):
    """Shows a conversation. Call `sync` after it changed; the end stays in view until the user scrolls up."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "role-you", "role-model", "hint", "thought", "failed", "footer", "mark", "heat", "heat-low",
        "box", "box-title", "box-button",
        "code-comment", "code-keyword", "code-string", "code-number", "code-name", "code-builtin",
        "md-strong", "md-em", "md-strike", "md-link", "md-url", "md-code", "md-math", "md-h1", "md-h3", "md-bullet",
        "md-quote-bar",
        "spec-draft", "spec-lookup", "spec-swift", "spec-target", "spec-bonus", "spec-plain", "spec-rejected",
    }  # fmt: skip

    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False)
    """Grows with every line: a layout of the screen each time would cost more than the line itself."""

    @dataclass
    class CopyAsked(Message):
        """The copy button of a code block was clicked."""

        text: str

    @dataclass
    class LinkAsked(Message):
        """A web link was clicked."""

        url: str

    def __init__(self, conversation: Conversation, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._conversation = conversation
        self._token_view = False
        self._turns: list[TurnView] = []
        """Views of the turns from number `_oldest` on; earlier ones are made when they are scrolled to."""
        self._oldest = 0
        self._window = Window()
        self._stable = 0
        """Sections of all turns but the last."""
        self._strips: dict[int, Strip] = {}
        self._following = True
        self._syncing = False
        self._laid_out_at = 0
        self._base: tuple[RichStyle, dict[str, list[Segment]]] | None = None

    # What is shown

    @property
    def token_view(self) -> bool:
        return self._token_view

    @property
    def following(self) -> bool:
        """Whether the end is kept in view."""
        return self._following

    @property
    def text(self) -> str:
        """All text laid out, as it would be copied."""
        return _joined([line for line, _ in self._window.rows])

    def show(self, conversation: Conversation, *, token_view: bool | None = None) -> None:
        """Show another conversation, or the same one differently; what was being read stays in view."""
        place = self._place()
        self._conversation = conversation
        if token_view is not None:
            self._token_view = token_view
        self._turns, self._window, self._stable = [], Window(), 0
        self._oldest = max(len(conversation.turns) - _TURNS, 0)
        self._following = True
        self.screen.clear_selection()
        self.sync()
        self._lay_out(place)

    def sync(self) -> None:
        """Take in what changed in the last turn, and new turns."""
        turns = self._conversation.turns
        known = self._oldest + len(self._turns)
        if known > len(turns) or (self._turns and self._turns[-1].turn is not turns[known - 1]):
            self.show(self._conversation)
            return
        if self._turns:
            self._replace_last(self._turns[-1].sections())
        for number, turn in enumerate(turns[known:], known):
            self._stable = len(self._window.sections)
            view = self._view(number, turn)
            self._turns.append(view)
            self._replace_last(view.sections())
            self._following = True

    def _view(self, number: int, turn: Turn) -> TurnView:
        return TurnView(turn, first=number == 0, token_view=self._token_view)

    def _add_older_turns(self) -> bool:
        """Take in some turns before those there are; False when there are none."""
        start = max(self._oldest - _TURNS, 0)
        turns = self._conversation.turns[start : self._oldest]
        views = [self._view(number, turn) for number, turn in enumerate(turns, start)]
        sections = [section for view in views for section in view.sections()]
        self._turns[:0], self._oldest = views, start
        self._window.prepend(sections)
        self._stable += len(sections)
        return bool(views)

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._following = True
        self._to_end()

    # Layout

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _text_width(self) -> int:
        return max(self._width - 2, 8)

    def _replace_last(self, sections: list[Section]) -> None:
        if not self._width:
            self._laid_out_at = 0
        changed = self._window.replace(self._stable, sections, self._text_width if self._width else 0)
        if changed is not None:
            for stale in [row for row in self._strips if row >= changed]:
                del self._strips[stale]
            self._resized(changed)

    def _place(self) -> Place | None:
        """What is at the top of the screen, None while the end is followed."""
        return None if self._following else self._window.place(round(self.scroll_y))

    def _lay_out(self, place: Place | None) -> None:
        """Start again at the current width, with `place` at the top where there is one."""
        width = self._text_width
        self._window.reset(width)
        row = self._window.row_of(place, width) if place else None
        while place and row is None and self._add_older_turns():
            row = self._window.row_of(place, width)
        self._strips.clear()
        self._resized()
        if row is not None:
            self._following = False
            self.scroll_to(y=row, animate=False, immediate=True)

    def _extend_up(self) -> None:
        """Lay out more rows above, keeping what is on the screen where it is."""
        if self._window.complete:
            self._add_older_turns()
        added = self._window.extend(self._text_width)
        self._strips.clear()
        self.screen.clear_selection()
        self._resized(shift=added)

    def _resized(self, changed: int = 0, shift: int = 0) -> None:
        """Rows from `changed` on are new, and `shift` rows came in above what is on the screen."""
        self._syncing = True
        before, at = self.scroll_y, self.scroll_y + shift
        size = Size(self._width, len(self._window.rows))
        if size != self.virtual_size:
            self.virtual_size = size
            self.vertical_scrollbar.window_virtual_size = size.height
            self.vertical_scrollbar.refresh()
        if self._following:
            self._to_end()
        elif shift:
            self.set_scroll(None, at)
            self.scroll_target_y = at
        else:
            self.scroll_y = self.validate_scroll_y(self.scroll_y)
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
        self._following = new_value >= self.max_scroll_y - 0.5
        if new_value < old_value and new_value < self.size.height and (self._oldest or not self._window.complete):
            self.call_after_refresh(self._extend_up)

    def on_resize(self) -> None:
        if self._laid_out_at == self._text_width:
            self._resized()
            return
        self._laid_out_at = self._text_width
        self._lay_out(self._place())

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._base = None

    # Rendering

    def render_line(self, y: int) -> Strip:
        row = round(self.scroll_y) + y
        if row >= len(self._window.rows):
            return Strip.blank(self._width, self._looks()[0])
        selection = self.text_selection
        strip = self._strips.get(row) if selection is None else None
        if strip is None:
            strip = self._strip(row, selection)
            if selection is None:
                self._strips[row] = strip
        return strip

    def _strip(self, row: int, selection: Selection | None) -> Strip:
        line, heat = self._window.rows[row]
        content = line.content.expand_tabs(4)
        if selection is not None and (span := selection.get_span(row)) is not None:
            start, end = span
            style = self.screen.get_visual_style("screen--selection")
            content = content.stylize(style, start, len(content) if end == -1 else end)
        background, heat_cells = self._looks()
        segments = [
            Segment(text, style.rich_style)
            for text, style in content.render(self.visual_style, end="", parse_style=self._get_style)
        ]
        strip = Strip(segments, content.cell_length).adjust_cell_length(self._width - 2, background)
        glyph = "" if heat is None else next(glyph for least, glyph in _HEAT if heat >= least)
        return Strip([*strip.apply_offsets(0, row), *heat_cells[glyph]], self._width)

    def _looks(self) -> tuple[RichStyle, dict[str, list[Segment]]]:
        """The background, and the two cells beside a row by heat glyph."""
        if self._base is None:
            background = self.rich_style
            cells = {"": [Segment("  ", background)]}
            for least, glyph in _HEAT:
                style = self.visual_style + self.get_visual_style("heat" if least else "heat-low")
                cells[glyph] = [Segment(" ", background), Segment(glyph, style.rich_style)]
            self._base = background, cells
        return self._base

    # Selection and clicks

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        chosen: list[Line] = []
        for row, (line, _) in enumerate(self._window.rows):
            span = selection.get_span(row)
            if span is None or not line.copied:
                continue
            last = len(line.content) if line.end is None else line.end
            start = max(span[0], line.start)
            end = last if span[1] == -1 else min(span[1], last)
            chosen.append(Line(Content(line.content.plain[start:end]), soft=line.soft and end == last, glue=line.glue))
        return (_joined(chosen), "\n") if chosen else None

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        meta = event.style.meta
        if isinstance(text := meta.get("copy"), str):
            self.post_message(self.CopyAsked(text))
        elif isinstance(url := meta.get("href"), str) and is_web_link(url):
            self.post_message(self.LinkAsked(url))


def _joined(lines: list[Line]) -> str:
    parts: list[str] = []
    for line in lines:
        if line.copied:
            parts += [line.text, line.glue if line.soft else "\n"]
    return "".join(parts).rstrip("\n")
