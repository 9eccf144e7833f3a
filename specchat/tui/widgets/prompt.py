"""The prompt box: several lines, history at its edges, large pastes folded."""

from dataclasses import dataclass

from textual import events
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import TextArea

from specchat.clean import clean
from specchat.tui.history import PromptHistory
from specchat.tui.pastes import LARGEST, Pastes


class Prompt(TextArea):
    """Posts `Sent` on enter; ctrl+j starts a new line. What it holds is never lost unless it was sent."""

    @dataclass
    class Sent(Message):
        """Enter was pressed; `text` is the prompt with pastes unfolded."""

        text: str

    @dataclass
    class Refused(Message):
        """A paste was not taken; `reason` is a sentence."""

        reason: str

    @dataclass
    class Paged(Message):
        """Page up (-1) or page down (1) was pressed."""

        direction: int

    def __init__(self, history: PromptHistory, *, id: str | None = None) -> None:
        super().__init__(
            id=id, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False, tab_behavior="focus"
        )
        self.cursor_blink = False
        self._history = history
        self._pastes = Pastes()

    @property
    def prompt(self) -> str:
        """The text as it would be sent."""
        return self._pastes.unfold(self.text)

    def take(self) -> None:
        """The prompt was sent: remember and empty it."""
        self._history.add(self.prompt)
        self._pastes.clear()
        self.load_text("")

    def restore(self, prompt: str) -> None:
        """Put back a prompt that got no answer, unless something else was typed since."""
        if not self.text.strip():
            self.fill(prompt)

    def fill(self, prompt: str) -> None:
        """Put another text into the box, whatever is in it."""
        self._pastes.clear()
        self.load_text(self._pastes.fold(clean(prompt)))
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            self.post_message(self.Sent(self.prompt))
        elif event.key in ("ctrl+j", "shift+enter", "alt+enter"):
            self.insert("\n")
            self.scroll_cursor_visible()
        else:
            return
        event.stop()
        event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._insert_pasted(event.text)

    def action_paste(self) -> None:
        self._insert_pasted(self.app.clipboard)

    def _insert_pasted(self, pasted: str) -> None:
        if len(pasted) > LARGEST:
            self.post_message(self.Refused(f"that paste has {len(pasted):,} characters; at most {LARGEST:,} are taken"))
            return
        text = clean(pasted.replace("\r\n", "\n").replace("\r", "\n"))
        if text:
            self.insert(self._pastes.fold(text), maintain_selection_offset=False)
            self.scroll_cursor_visible()

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self._at_edge(-1):
            super().action_cursor_up(select)
        elif (older := self._history.older(self.prompt)) is not None:
            self.fill(older)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self._at_edge(1):
            super().action_cursor_down(select)
        elif (newer := self._history.newer()) is not None:
            self.fill(newer)

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Undoing asks for this before the cursor has left lines that are not there any more."""
        if self.cursor_location[0] >= self.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)

    def _at_edge(self, direction: int) -> bool:
        """Whether the cursor is in the first (-1) or last (1) row as wrapped."""
        row = self.wrapped_document.location_to_offset(self.cursor_location).y
        return row == (0 if direction < 0 else self.wrapped_document.height - 1)

    def action_cursor_page_up(self) -> None:
        self.post_message(self.Paged(-1))

    def action_cursor_page_down(self) -> None:
        self.post_message(self.Paged(1))
