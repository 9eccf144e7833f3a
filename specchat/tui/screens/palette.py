"""The command palette."""

from textual import on
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.message import Message
from textual.widgets import Input, OptionList


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
