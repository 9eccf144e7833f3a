"""The command palette."""

from textual import on
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.message import Message
from textual.widgets import Input, OptionList


class Palette(CommandPalette):
    """Takes one command: what came together with the key that chose it would run it again, and close what is behind."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _late(self, event: Message) -> None:
        if not self.is_active:
            event.stop()
            event.prevent_default()
