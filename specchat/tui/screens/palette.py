"""The command palette."""

from textual.command import CommandList, CommandPalette


class Palette(CommandPalette):
    """Textual's, whose list cannot turn a page before it has rows on the screen."""

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)
