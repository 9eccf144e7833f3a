"""What the command palette offers."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from specchat.clean import one_line
from specchat.engine.strategies import STRATEGIES
from specchat.tui.keys import KEYS

if TYPE_CHECKING:
    from specchat.tui.app import SpecchatApp


def _literal(text: str) -> str:
    """`text` for the palette, which reads its entries as markup: brackets become look-alikes."""
    return one_line(text, 80).replace("[", "⟦").replace("]", "⟧")


def commands(app: "SpecchatApp") -> Iterable[SystemCommand]:
    """All keys' actions, then models, strategies and themes."""
    chat = app.chat
    for key in KEYS:
        if key.bound:
            yield SystemCommand(key.label, f"{key.help} ({key.shown})", partial(_run, app, key.action))
    yield SystemCommand("Save chat", "Write the chat to a Markdown file in this folder.", partial(_save, app))
    for strategy in STRATEGIES.values():
        yield SystemCommand(
            f"Strategy: {strategy.title}", strategy.description, partial(chat.choose_strategy, strategy.name)
        )
    for pair in app.catalog.pairs:
        yield SystemCommand(f"Model: {_literal(pair.spec.name)}", "Load this pair.", partial(chat.choose_pair, pair))
    for theme in sorted(app.available_themes):
        yield SystemCommand(f"Theme: {_literal(theme)}", "Use this theme.", partial(setattr, app, "theme", theme))
    yield SystemCommand("Quit", "Leave specchat (ctrl+q).", app.action_quit)


async def _run(app: "SpecchatApp", action: str) -> None:
    await app.chat.run_action(action)


def _save(app: "SpecchatApp") -> None:
    """Write the chat beside what is there, never over it."""
    number = 1
    while (path := Path(f"specchat-{number}.md")).exists():
        number += 1
    try:
        path.write_text(app.session.conversation.as_markdown(), encoding="utf-8")
    except OSError as error:
        app.chat.say(f"the chat could not be written: {error}", bad=True)
    else:
        app.chat.say(f"chat written to {path.resolve()}")
