"""The list above the prompt: filled while typing, and the keys it takes while it is open."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from specchat.attachments.mentions import Typed, typed_mention
from specchat.tui.action import Action
from specchat.tui.composing import slash
from specchat.tui.composing.completion import Completion, Suggestion
from specchat.tui.widgets.completions import Completions
from specchat.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from specchat.tui.composing.files import FileLister  # it is imported once a file is named

_ROWS_ABOVE = 2
"""Rows at the top of the screen that the list leaves free."""


class Completer:
    """Fills and moves `choices`, the list above `prompt`. Commands are looked up at once, files in a thread.

    `commands` gives the actions by slash command, `values` gives the arguments known for one, `bottom` the row that the
    list stands on.
    """

    def __init__(
        self,
        prompt: Prompt,
        choices: Completions,
        commands: Callable[[], Mapping[str, Action[Any]]],
        values: slash.Values,
        bottom: Callable[[], int],
    ) -> None:
        self._prompt = prompt
        self._list = choices
        self._commands = commands
        self._values = values
        self._bottom = bottom
        self._files: FileLister | None = None
        self._seen: tuple[str, int, bool] | None = None
        self._fits = ("", 0)
        """The line and column that what is listed is for."""
        self._closed_at: tuple[str, int] | None = None
        """The line and column at which the list was closed with esc: it stays closed there."""

    def typed(self) -> None:
        """The prompt or its cursor changed: show what fits."""
        line, column, first = seen = self._prompt.line_at_cursor()
        if seen == self._seen:
            return
        self._seen = seen
        if self._prompt.untouched or (line, column) == self._closed_at:
            self._show(None)
            return
        self._closed_at = None
        if first and (found := slash.complete(line, column, self._commands(), self._values)) is not None:
            self._show(found)
            return
        typed = typed_mention(line, column)
        if typed is None:
            self._show(None)
        else:
            self._prompt.run_worker(self._find(typed, line, column), group="files", exclusive=True, exit_on_error=False)

    def again(self) -> None:
        """Show what fits now, though nothing was typed."""
        self._seen = None
        self.typed()

    async def _find(self, typed: Typed, line: str, column: int) -> None:
        if self._files is None:
            from specchat.tui.composing.files import FileLister

            self._files = FileLister()
        found = await asyncio.to_thread(self._files.complete, typed, column)
        if (line, column) == self._prompt.line_at_cursor()[:2] and (line, column) != self._closed_at:
            self._show(found)

    def _show(self, found: Completion | None) -> None:
        if found is None or not self._prompt.has_focus:
            if self._list.completion is not None:
                self._list.close()
            return
        self._fits = self._prompt.line_at_cursor()[:2]
        self._list.open(found, self._bottom() - _ROWS_ABOVE)

    # Keys

    def key(self, key: str) -> bool:
        """True if the open list takes this key."""
        if key in ("up", "down", "tab", "enter"):
            self.typed()  # keys may come faster than the news of what was typed
        if self._list.completion is None or self._fits != self._prompt.line_at_cursor()[:2]:
            return False
        if key in ("up", "down"):
            self._list.move(1 if key == "down" else -1)
            return True
        if key == "tab":
            self.take(self._list.marked or self._list.completion.choices[0])
            return True
        return key == "enter" and self._enter(self._list.completion)

    def _enter(self, completion: Completion) -> bool:
        """Take the marked choice, unless it is there already or can be sent as soon as it is taken."""
        choice = self._list.marked
        if choice is None or self._is_there(choice, completion):
            self._list.close()
            return False
        self.take(choice)
        return not choice.sends

    def _is_there(self, choice: Suggestion, completion: Completion) -> bool:
        line = self._prompt.line_at_cursor()[0]
        return line[completion.start : completion.end] == choice.text.rstrip()

    @property
    def chooses(self) -> bool:
        """True if enter would take the marked choice and send nothing."""
        choice, completion = self._list.marked, self._list.completion
        return bool(choice and completion and not choice.sends and not self._is_there(choice, completion))

    def take(self, choice: Suggestion) -> None:
        """Put a choice in place of what was typed."""
        completion = self._list.completion
        if completion is None:
            return
        line, column, _ = self._prompt.line_at_cursor()
        self._list.close()
        self._prompt.put(choice.text, completion.start, min(max(completion.end, column), len(line)))

    def close(self) -> bool:
        """Hide the list until something else is typed; whether it was open."""
        if self._list.completion is None:
            return False
        line, column, _ = self._prompt.line_at_cursor()
        self._closed_at = (line, column)
        self._list.close()
        return True
