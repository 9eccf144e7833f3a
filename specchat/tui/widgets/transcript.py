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

from specchat.tui.conversation import Conversation
from specchat.tui.text.lines import Line, Section
from specchat.tui.text.markdown import is_web_link
from specchat.tui.text.turn import TurnView

_WINDOW = 400
"""Rows laid out at first, and added when the top of them comes near."""

_HEAT = ((0.75, "█"), (0.45, "▐"), (0.0, "▕"))


class Transcript(ScrollView, can_focus=False):
    """Shows a conversation. Call `sync` after it changed; the end stays in view until the user scrolls up."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "role-you", "role-model", "hint", "failed", "footer", "mark", "heat", "heat-low",
        "box", "box-title", "box-button",
        "code-comment", "code-keyword", "code-string", "code-number", "code-name", "code-builtin",
        "md-strong", "md-em", "md-strike", "md-link", "md-url", "md-code", "md-h1", "md-h3", "md-bullet",
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
        self._sections: list[Section] = []
        self._stable = 0
        """Sections of all turns but the last."""
        self._first = 0
        """The first section laid out."""
        self._rows: list[tuple[Line, float | None]] = []
        self._starts: list[int] = []
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
        return _joined([line for line, _ in self._rows])

    def show(self, conversation: Conversation, *, token_view: bool | None = None) -> None:
        """Show another conversation, or the same one differently."""
        self._conversation = conversation
        if token_view is not None:
            self._token_view = token_view
        self._turns, self._sections, self._stable = [], [], 0
        self._following = True
        self.screen.clear_selection()
        self.sync()
        self._lay_out_window()

    def sync(self) -> None:
        """Take in what changed in the last turn, and new turns."""
        turns = self._conversation.turns
        known = len(self._turns)
        if known > len(turns) or (known and self._turns[-1].turn is not turns[known - 1]):
            self.show(self._conversation)
            return
        if known < len(turns):
            if self._turns:
                self._replace_last(self._turns[-1].sections())
            self._stable = len(self._sections)
            for turn in turns[known:]:
                self._stable = len(self._sections)
                view = TurnView(turn, first=not self._turns, token_view=self._token_view)
                self._turns.append(view)
                self._replace_last(view.sections())
            self._following = True
        else:
            self._replace_last(self._turns[-1].sections() if self._turns else [])

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
        old = self._sections[self._stable :]
        same = 0
        while same < len(old) and same < len(sections) and old[same] is sections[same]:
            same += 1
        changed = self._stable + same
        if changed == len(self._sections) and same == len(sections):
            return
        self._sections[changed:] = sections[same:]
        if self._width:
            self._lay_out_from(max(changed, self._first))

    def _lay_out_from(self, changed: int) -> None:
        kept = changed - self._first
        row = self._starts[kept] if kept < len(self._starts) else len(self._rows)
        del self._rows[row:], self._starts[kept:]
        for stale in [index for index in self._strips if index >= row]:
            del self._strips[stale]
        width = self._text_width
        for section in self._sections[changed:]:
            self._starts.append(len(self._rows))
            self._rows += [(line, section.heat_of(i)) for i, line in enumerate(section.lines(width))]
        self._resized(row)

    def _lay_out_window(self) -> None:
        """Start again at the current width with as many sections from the end as fill the window."""
        width, rows, first = self._text_width, 0, len(self._sections)
        while first and rows < _WINDOW:
            first -= 1
            rows += len(self._sections[first].lines(width))
        self._first = first
        self._rows, self._starts = [], []
        self._strips.clear()
        self._lay_out_from(first)

    def _extend_up(self) -> None:
        """Lay out more rows above, keeping what is on the screen where it is."""
        width = self._text_width
        sections: list[Section] = []
        rows: list[tuple[Line, float | None]] = []
        while self._first and len(rows) < _WINDOW:
            self._first -= 1
            section = self._sections[self._first]
            lines = [(line, section.heat_of(i)) for i, line in enumerate(section.lines(width))]
            sections.insert(0, section)
            rows[:0] = lines
        starts, position = [], 0
        for section in sections:
            starts.append(position)
            position += len(section.lines(width))
        self._rows[:0] = rows
        self._starts = starts + [start + len(rows) for start in self._starts]
        self._strips.clear()
        self.screen.clear_selection()
        self._resized(shift=len(rows))

    def _resized(self, changed: int = 0, shift: int = 0) -> None:
        """Rows from `changed` on are new, and `shift` rows came in above what is on the screen."""
        self._syncing = True
        before, at = self.scroll_y, self.scroll_y + shift
        size = Size(self._width, len(self._rows))
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
        if new_value < old_value and new_value < self.size.height and self._first:
            self.call_after_refresh(self._extend_up)

    def on_resize(self) -> None:
        if self._rows and self._rows[0][0].content.cell_length and self._laid_out_at == self._text_width:
            self._resized()
            return
        self._laid_out_at = self._text_width
        self._lay_out_window()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._base = None

    # Rendering

    def render_line(self, y: int) -> Strip:
        row = round(self.scroll_y) + y
        if row >= len(self._rows):
            return Strip.blank(self._width, self._looks()[0])
        selection = self.text_selection
        strip = self._strips.get(row) if selection is None else None
        if strip is None:
            strip = self._strip(row, selection)
            if selection is None:
                self._strips[row] = strip
        return strip

    def _strip(self, row: int, selection: Selection | None) -> Strip:
        line, heat = self._rows[row]
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
        for row, (line, _) in enumerate(self._rows):
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
