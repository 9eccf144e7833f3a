"""The prompt box: several lines, history at its edges, large pastes folded."""

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import EditResult, Location, Selection

from specchat.attachments.mentions import mention, pasted_path
from specchat.clean import clean
from specchat.config.saved_prompts import BLANK
from specchat.dataclass import dataclass
from specchat.tui.draft import UnsentText
from specchat.tui.history import PromptHistory
from specchat.tui.pastes import LARGEST, UNFOLD_BELOW, Pastes

_KILLS = {
    "ctrl+k": "delete_to_end_of_line_or_delete_line",
    "ctrl+u": "delete_to_start_of_line",
    "ctrl+w": "delete_word_left",
}
"""Keys that keep what they delete, for ctrl+y."""


class Prompt(TextArea):
    """Posts `Sent` on enter; ctrl+j starts a new line. What it holds is never lost unless it was sent.

    `takes_key` sees every key first: the list of choices takes some while it is open. `follows` gives what follows
    the newest text downwards, empty for nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+p", "cursor_up", show=False),
        Binding("ctrl+n", "cursor_down", show=False),
        Binding("ctrl+y", "yank", show=False),
        *(Binding(key, f"kill('{action}')", show=False) for key, action in _KILLS.items()),
    ]

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
        self.takes_key: Callable[[str], bool] = lambda _: False
        self.follows: Callable[[str], str] = lambda _: ""
        self._pastes = Pastes()
        self._filled = ""
        self._taken = ("", UnsentText())
        """The prompt sent last, and the box as it was then."""
        self._deleted = self._killed = ""
        self._blanks = False
        """True while there may be blanks to fill in."""
        self._after_kill: tuple[str, Location] | None = None
        """The text and the cursor after the last kill: another one there adds to it."""
        self.aside = UnsentText()
        """Unsent text from before an earlier prompt was put here for editing."""

    @property
    def prompt(self) -> str:
        """The text as it would be sent."""
        return self._pastes.unfold(self.text)

    @property
    def draft(self) -> UnsentText:
        """The box as it is."""
        return UnsentText(self.text, self._pastes.texts)

    def take(self, sent: str = "") -> None:
        """The prompt was sent, as `sent`, or a command run: remember and empty it; what was set aside follows."""
        self._history.add(self.prompt)
        self._taken = (sent, self.draft)
        if sent:
            self.bring_back()
        else:
            self.put_back(UnsentText())

    def restore(self, prompt: str) -> None:
        """Put back a prompt that got no answer, as it was typed, unless something else was typed since."""
        if not self.text.strip():
            sent, draft = self._taken
            if sent == prompt:
                self.put_back(draft)
            else:
                self.fill(prompt)

    def put_back(self, draft: UnsentText) -> None:
        """Make the box what it was."""
        self._pastes.replace(draft.pastes)
        self.load_text(draft.text)
        self._filled = self.text
        self.move_cursor(self.document.end)

    def fill(self, prompt: str) -> None:
        """Put another text into the box, whatever is in it."""
        self._pastes.replace({})
        self.load_text(self._pastes.fold(clean(prompt)))
        self._filled = self.text
        self.move_cursor(self.document.end)

    def fill_in(self, text: str) -> None:
        """Put a text into the box whose blanks tab goes through."""
        self.fill(text)
        self._blanks = True
        self.move_cursor((0, 0))
        if not self._next_blank():
            self.move_cursor(self.document.end)

    def _next_blank(self) -> bool:
        """Select the next blank, from the first again after the last; False if there is none."""
        lines = self.text.split("\n") if self._blanks else []
        blanks = [(row, blank.span()) for row, line in enumerate(lines) for blank in BLANK.finditer(line)]
        places = [((row, first), (row, last)) for row, (first, last) in blanks]
        self._blanks = bool(places)
        if places:
            at = max(self.selection.start, self.selection.end)
            self.selection = Selection(*next((place for place in places if place[0] >= at), places[0]))
        return bool(places)

    def set_aside(self, prompt: str) -> None:
        """Put an earlier prompt into the box; what is being typed comes back with `bring_back`."""
        self.aside = self.draft
        self.fill(prompt)

    def bring_back(self) -> None:
        """Give the box back what was set aside."""
        self.put_back(self.aside)
        self.aside = UnsentText()

    def begin(self, prompt: str) -> None:
        """Begin an empty prompt with `prompt`, as if it had been typed; a prompt that is there stays."""
        if not self.text.strip():
            self.load_text("")
            self.insert(prompt)
        self.screen.set_focus(self)

    # For completion

    @property
    def untouched(self) -> bool:
        """True if it holds just what was put there, an earlier prompt say: then nothing is being completed."""
        return bool(self._filled) and self.text == self._filled

    def line_at_cursor(self) -> tuple[str, int, bool]:
        """The line with the cursor, the cursor's column, and whether it is the first line."""
        row, column = self.cursor_location
        return self.document.get_line(row), column, row == 0

    def put(self, text: str, start: int, end: int) -> None:
        """Put `text` in place of columns `start` to `end` of the cursor's line."""
        row = self.cursor_location[0]
        self.replace(text, (row, start), (row, end), maintain_selection_offset=False)

    # Keys and pastes

    async def _on_key(self, event: events.Key) -> None:
        if self.takes_key({"ctrl+p": "up", "ctrl+n": "down"}.get(event.key, event.key)):
            pass
        elif event.key == "enter":
            self.screen.post_message(self.Sent(self.prompt))  # itself it would get it after the next key
        elif event.key in ("ctrl+j", "shift+enter", "alt+enter"):
            self.action_newline()
        elif event.key == "tab" and self._next_blank():
            pass
        else:
            return
        event.stop()
        event.prevent_default()

    def action_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._insert_pasted(event.text)

    def action_paste(self) -> None:
        self._insert_pasted(self.app.clipboard)

    def _insert_pasted(self, pasted: str) -> None:
        if len(pasted) > LARGEST:
            self.post_message(self.Refused(f"that paste has over {LARGEST:,} characters, and no more are taken"))
            return
        if (path := pasted_path(pasted)) is not None:
            self.attach(path)
        elif text := self._pastes.fold(clean(pasted.replace("\r\n", "\n").replace("\r", "\n"))):
            self.insert(text, maintain_selection_offset=False)
            self.scroll_cursor_visible()

    def attach(self, path: str) -> None:
        """Name a file at the cursor."""
        line, column, _ = self.line_at_cursor()
        apart = " " * (line[column - 1 : column].strip() != "")
        self.insert(f"{apart}{mention(path)} ", maintain_selection_offset=False)
        self.scroll_cursor_visible()

    def unfold_paste(self) -> str:
        """Put the paste at the cursor in place of its stand-in; gives a refusal."""
        line, column, _ = self.line_at_cursor()
        folded = self._pastes.at(line, column)
        if folded is None:
            return "there is no folded paste at the cursor"
        if len(folded.text) > UNFOLD_BELOW:
            return f"that paste has {len(folded.text):,} characters; at most {UNFOLD_BELOW:,} can be edited here"
        self.put(folded.text, folded.start, folded.end)
        self.scroll_cursor_visible()
        return ""

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self._at_edge(-1):
            super().action_cursor_up(select)
        elif (older := self._history.older(self.prompt)) is not None:
            self.fill(older)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self._at_edge(1):
            super().action_cursor_down(select)
        elif (newer := self._history.newer(self.prompt)) is not None:
            self.fill(newer)
        elif following := self.follows(self.text):
            self.fill(following)

    def delete(self, start: Location, end: Location, *, maintain_selection_offset: bool = True) -> EditResult:
        result = super().delete(start, end, maintain_selection_offset=maintain_selection_offset)
        self._deleted = result.replaced_text
        return result

    async def action_kill(self, how: str) -> None:
        """Delete as readline does, and keep it for ctrl+y."""
        before = self._killed if self._after_kill == (self.text, self.cursor_location) else ""
        self._deleted = ""
        await self.run_action(how)
        self._killed = before + self._deleted if how == _KILLS["ctrl+k"] else self._deleted + before
        self._after_kill = (self.text, self.cursor_location)

    def action_yank(self) -> None:
        self.insert(self._killed, maintain_selection_offset=False)
        self.scroll_cursor_visible()

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Undoing asks for this before the cursor has left lines that are not there any more."""
        if self.cursor_location[0] >= self.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)

    def _at_edge(self, direction: int) -> bool:
        """True if the cursor is in the first (-1) or last (1) row as wrapped."""
        row = self.wrapped_document.location_to_offset(self.cursor_location).y
        return row == (0 if direction < 0 else self.wrapped_document.height - 1)

    def action_cursor_page_up(self) -> None:
        self.post_message(self.Paged(-1))

    def action_cursor_page_down(self) -> None:
        self.post_message(self.Paged(1))
