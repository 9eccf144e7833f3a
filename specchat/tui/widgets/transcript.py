"""The chat to read: matches and labels drawn over its rows, and clicks."""

import re

from textual import events
from textual.content import Content
from textual.message import Message
from textual.style import Style

from specchat.chat.tree import Conversation
from specchat.clean import is_web_link
from specchat.dataclass import dataclass
from specchat.tui.keys import Keys
from specchat.tui.text.find import Match, Span, found_in
from specchat.tui.text.labels import JumpTarget, labels, overlaid, targets
from specchat.tui.text.lines import Section
from specchat.tui.text.thoughts import fold_of
from specchat.tui.widgets.token_cursor import TokenCursor


class Transcript(TokenCursor):
    """Its keys are those of the actions of `where` "transcript"."""

    @dataclass
    class CopyAsked(Message):
        """Something is to be copied, named `what`; code where its button was clicked or its letter typed."""

        text: str
        what: str = "code"

    @dataclass
    class LinkAsked(Message):
        """A web link was clicked, or its letter typed."""

        url: str

    @dataclass
    class TokensAsked(Message):
        """The heat beside row `row` was clicked."""

        row: int

    def __init__(self, conversation: Conversation, keys: Keys) -> None:
        super().__init__(conversation, keys)
        self._pattern: re.Pattern[str] | None = None
        self._match: Match | None = None
        """The one gone to last."""
        self._current: tuple[Section, int] | None = None
        """The section that shows it, and its number among the matches there."""
        self._found: dict[Section, list[list[Span]]] = {}
        self._labels: dict[str, JumpTarget] = {}
        self._typed = ""

    def on_blur(self) -> None:
        self.end_labels()

    def sync(self) -> None:
        super().sync()
        self._keep_match()

    def relaid(self) -> None:
        self._found.clear()
        self._labels = {}
        self._keep_match()
        super().relaid()

    def _extend_up(self) -> None:
        before = len(self.chat_rows.rows)
        super()._extend_up()
        if len(self.chat_rows.rows) != before:
            self.end_labels()

    # Matches

    def mark(self, pattern: re.Pattern[str] | None) -> None:
        """Draw the matches of `pattern` in all rows; None draws none."""
        self._pattern, self._match, self._current, self._found = pattern, None, None, {}
        self._painter.drawn.clear()
        self.refresh()

    def go_to_match(self, match: Match, *, unfold: bool = True) -> None:
        """Put the cursor on a match of the pattern; reasoning that hides it is unfolded."""
        pattern = self._pattern
        if pattern is None:
            return
        row = self.chat_rows.row_of(match.said, self._text_width, match.start)
        found = self.chat_rows.window.section_at(row) if row is not None else None
        if row is None or found is None:
            return
        section = self.chat_rows.window.sections[found[0]]
        if unfold and (fold := fold_of(self.chat_rows.rows[row][0])) and fold not in self._unfolded:
            self._arrive(row)
            self.toggle_fold(row)
            self.go_to_match(match)
            return
        self._match, self._current = match, self._shown_in(section, match)
        inside = self._matches_of(section)[self._current[1]][0][0] if self._current else 0
        self._arrive(row + inside)

    def _shown_in(self, section: Section, match: Match) -> tuple[Section, int] | None:
        """Number of `match` among the matches that `section` shows; None where it shows none."""
        shown = self._matches_of(section)
        if self._pattern is None or not shown:
            return None
        earlier = sum(1 for _ in self._pattern.finditer(match.said.text, section.start, match.start))
        return section, min(earlier, len(shown) - 1)

    def _keep_match(self) -> None:
        """The block being written is another section with every step: find the match in its present one."""
        sections, match = self.chat_rows.window.sections, self._match
        if self._current is None or match is None or self._current[0] in sections:
            return
        reply = match.said.turn.reply if match.said.by == "model" else None
        holds = (section for section in sections if section.reply is reply is not None and section.end > match.start)
        section = next(holds, None)
        self._current = self._shown_in(section, match) if section is not None else None

    def _matches_of(self, section: Section) -> list[list[Span]]:
        if self._pattern is None:
            return []
        if section not in self._found:
            if len(self._found) > 500:
                self._found.clear()
            self._found[section] = found_in(section.lines(self._text_width), self._pattern)
        return self._found[section]

    # Labels

    @property
    def labelled(self) -> bool:
        """True if letters are shown, one of which is waited for."""
        return bool(self._labels)

    def start_labels(self) -> bool:
        """Put letters on what is in view; False when there is nothing."""
        found = targets(self.chat_rows, round(self.scroll_y), self.size.height)
        self._labels, self._typed = dict(zip(labels(len(found)), found, strict=False)), ""
        self.moved()
        return bool(found)

    def end_labels(self) -> None:
        if self._labels:
            self._labels = {}
            self.moved()

    def on_key(self, event: events.Key) -> None:
        if not self._labels:
            return
        event.stop()
        event.prevent_default()
        self._typed += event.character or " "
        target = self._labels.get(self._typed)
        if target is None and any(label.startswith(self._typed) for label in self._labels):
            return
        self.end_labels()
        if target is not None:
            self.go_to(target.row)
            if target.kind == "code":
                self.post_message(self.CopyAsked(target.text))
            elif target.kind == "link":
                self.post_message(self.LinkAsked(target.text))

    # Drawing and clicks

    def decorated(self, row: int, content: Content) -> Content:
        content, found = super().decorated(row, content), self.chat_rows.window.section_at(row)
        if found is None:
            return content
        section, inside = self.chat_rows.window.sections[found[0]], found[1]
        if self._pattern is not None:
            # As styles, not by name: Textual forgets an opaque background of a style it knows by name.
            current = self.get_visual_style("found-current")
            found_style = Style(self.get_visual_style("found").background, self.visual_style.foreground)
            for number, spans in enumerate(self._matches_of(section)):
                style = current if (section, number) == self._current else found_style
                for at, start, end in spans:
                    if at == inside:
                        content = content.stylize(style, start, end)
        for label, target in self._labels.items():
            if target.row == row and label.startswith(self._typed):
                content = overlaid(content, target.column, label, self.get_visual_style("label"))
        return content

    def on_click(self, event: events.Click) -> None:
        meta = event.style.meta
        row = round(self.scroll_y) + event.y
        if isinstance(text := meta.get("copy"), str):
            self.post_message(self.CopyAsked(text))
        elif isinstance(url := meta.get("href"), str) and is_web_link(url):
            self.post_message(self.LinkAsked(url))
        elif "fold" in meta:
            self.toggle_fold(row)
        elif "more" in meta:
            self.screen.set_focus(self)
            self.go_to(row)
        elif "heat" in meta:
            self.post_message(self.TokensAsked(row))
