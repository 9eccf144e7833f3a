"""The commands of the palette."""

from collections.abc import Iterable
from functools import partial

from textual.app import SystemCommand

from specchat.clean import one_line
from specchat.tui.screens.chat import ChatScreen

_ELSEWHERE = ("transcript", "call")


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
