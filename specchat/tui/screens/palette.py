"""The command palette, and what it lists."""

from collections.abc import Iterable
from functools import partial

from textual import on
from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.message import Message
from textual.widgets import Input, OptionList

from specchat.clean import one_line
from specchat.tui.screens.chat import ChatScreen

_ELSEWHERE = ("transcript", "call")


class Palette(CommandPalette):
    """Textual's, but it takes one command, and turns no page before its list has rows on the screen.

    What came together with the key that chose a command would run it again, and close what is behind.
    """

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _late(self, event: Message) -> None:
        if not self.is_active:
            event.stop()
            event.prevent_default()

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)


def _literal(text: str) -> str:
    """`text` for the palette, which reads its entries as markup: brackets become look-alikes."""
    return one_line(text, 80).replace("[", "⟦").replace("]", "⟧")


def commands(chat: ChatScreen) -> Iterable[SystemCommand]:
    """All actions but those of the transcript's cursor and of dialogs, then all with their known arguments."""
    actions = [action for action in chat.keys.actions if not action.fixed and action.where not in _ELSEWHERE]
    for action in actions:
        shown = f" ({keys})" if (keys := chat.keys.shown(action.id)) else ""
        yield SystemCommand(action.title, action.help + shown, partial(chat.do, action.id))
    for action in actions:
        for value, about in action.values(chat) if action.values is not None else ():
            words = _literal(about) or action.help
            yield SystemCommand(f"{action.title}: {_literal(value)}", words, partial(chat.do, action.id, value))
