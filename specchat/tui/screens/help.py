"""All keys."""

from collections.abc import Iterable

from textual.content import Content

from specchat.chat.sources import LEGEND
from specchat.tui.action import PLACES, Where
from specchat.tui.keys import Keys
from specchat.tui.screens.text_dialog import TextDialog
from specchat.tui.text.lines import EMPTY, TextLine, hang, styled

_KEY_WIDTH = 21
_BESIDE = 50
"""Columns from which the words stand beside the key, not below it."""
_INDENT = Content("  ")
_BELOW_KEY = Content(" " * _KEY_WIDTH)
_ABOUT = (
    "specchat answers with a model on this machine. A small helper guesses the next words: it drafts. The model "
    "verifies all of them at once and accepts those that it would have written itself. "
    "The text is the same with and without the helper; only the speed differs."
)


class HelpScreen(TextDialog):
    """Keys by place, commands, and the colours of the token view."""

    DIALOG_TITLE = "help"
    DIALOG_HINT = "up and down scroll · esc closes"

    def __init__(self, keys: Keys, place: Where = "prompt") -> None:
        """`place` is where the focus is: its keys come first."""
        super().__init__()
        self._keys = keys
        self._place = place
        for key in keys.of("help"):
            self._bindings.bind(key, "close", show=False)

    def rows(self, width: int) -> list[Content]:
        legend = [(source.words, styled(source.meaning, source.style)) for source in LEGEND]
        rows = list(hang(styled(_ABOUT, ".quiet"), width))
        first = (self._place, "anywhere")
        for place, title in sorted(PLACES.items(), key=lambda item: (item[0] not in first, item[0] == "anywhere")):
            rows += self._section(title, self._actions(place), width)
        rows += self._section("commands", self._commands(), width)
        rows += self._section("token view", legend, width)
        return [row.content for row in rows]

    def _actions(self, place: Where) -> list[tuple[str, Content]]:
        return [
            (keys, Content(action.help))
            for action in self._keys.actions
            if action.where == place and (keys := self._keys.shown(action.id))
        ]

    def _commands(self) -> list[tuple[str, Content]]:
        return [
            (f"/{action.slash}", Content(action.help + f" ({action.argument})" * bool(action.argument)))
            for action in self._keys.actions
            if action.slash
        ]

    def _section(self, title: str, entries: list[tuple[str, Content]], width: int) -> Iterable[TextLine]:
        if entries:
            yield from (TextLine(EMPTY), TextLine(styled(title, ".head")), *self._entries(entries, width))

    def _entries(self, entries: list[tuple[str, Content]], width: int) -> Iterable[TextLine]:
        for name, words in entries:
            if width < _BESIDE:
                yield from hang(styled(name, ".key"), width)
                yield from hang(words, width, _INDENT, _INDENT)
                continue
            first = styled(name.ljust(_KEY_WIDTH), ".key")
            if len(name) >= _KEY_WIDTH:
                yield TextLine(first)
                first = _BELOW_KEY
            yield from hang(words, width, first, _BELOW_KEY)
