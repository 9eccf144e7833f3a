"""All messages of the chat, to go to one."""

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.fuzzy import Matcher
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specchat.chat.turn import Turn
from specchat.clean import one_line
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.chat_rows import Said
from specchat.tui.text.reasoning import Reasoning
from specchat.tui.widgets.line_input import LineInput
from specchat.tui.widgets.options import Options

_SHOWN = 200
"""Messages listed at most; typing finds the others."""


class MessagesScreen(Dialog[Said | None]):
    """Gives the message chosen, None when closed."""

    CSS_PATH = "messages.tcss"
    DIALOG_TITLE = "messages"
    DIALOG_HINT = "type to filter · enter goes there · esc closes"
    BINDINGS = [  # noqa: RUF012
        Binding("down", "move(1)", "Next", show=False),
        Binding("up", "move(-1)", "Previous", show=False),
    ]

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__()
        self._entries = [
            (said, _first_line(said))
            for turn in turns
            for said in (Said(turn, "you"), Said(turn, "model"))
            if said.by == "you" or turn.reply is not None
        ]
        self._listed: list[Said] = []

    def compose_content(self) -> ComposeResult:
        yield LineInput(placeholder="filter")
        yield Options(markup=False)

    def on_mount(self) -> None:
        self._fill("")
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _fill_again(self, event: Input.Changed) -> None:
        self._fill(event.value)

    def _fill(self, query: str) -> None:
        listed = best(query, self._entries)
        self._listed = [said for said, _ in listed]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(_entry(said, line)) for said, line in listed])
        options.highlighted = (0 if query.strip() else len(listed) - 1) if listed else None

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._listed:
            options.highlighted = max(0, min((options.highlighted or 0) + by, len(self._listed) - 1))

    @on(Input.Submitted)
    def _accepted(self) -> None:
        at = self.query_one(OptionList).highlighted
        self.dismiss(self._listed[at] if at is not None and at < len(self._listed) else None)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._listed[event.option_index])


def best(query: str, entries: Sequence[tuple[Said, str]]) -> list[tuple[Said, str]]:
    """The entries that match best, best first; the latest ones in their order where nothing is looked for."""
    query = query.strip()
    if not query:
        return list(entries[-_SHOWN:])
    letters = query.casefold()
    near = [entry for entry in entries if _has_letters(letters, entry[1].casefold())]
    if len(near) > 10 * _SHOWN:
        near = [entry for entry in near if letters in entry[1].casefold()] or near[-10 * _SHOWN :]
    matcher = Matcher(query)
    scored = [(matcher.match(line), number, (said, line)) for number, (said, line) in enumerate(near)]
    scored.sort(key=lambda each: (-each[0], -each[1]))
    return [entry for score, _, entry in scored[:_SHOWN] if score > 0]


def _has_letters(letters: str, line: str) -> bool:
    """True if the letters stand in `line` in their order."""
    at = 0
    for letter in letters:
        at = line.find(letter, at) + 1
        if not at:
            return False
    return True


def _first_line(said: Said) -> str:
    text, reply = said.text, said.turn.reply
    if said.by == "model" and reply is not None:
        text = Reasoning(reply).answer or text
    text = text[:4000]
    return one_line(next((line for line in text.splitlines() if line.strip()), "(empty)"), 100)


def _entry(said: Said, line: str) -> Content:
    who = "you  " if said.by == "you" else "reply"
    return Content.styled(who, "$accent" if said.by == "you" else "$quiet") + f"  {line}"
