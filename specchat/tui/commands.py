"""The commands of the palette."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from specchat.clean import one_line
from specchat.engine.strategies import STRATEGIES
from specchat.tui.actions.composing import choose_persona, choose_preset
from specchat.tui.actions.table import ACTIONS
from specchat.tui.composing.personas import preset_words

if TYPE_CHECKING:
    from specchat.tui.app import SpecchatApp


def _literal(text: str) -> str:
    """`text` for the palette, which reads its entries as markup: brackets become look-alikes."""
    return one_line(text, 80).replace("[", "⟦").replace("]", "⟧")


def commands(app: "SpecchatApp") -> Iterable[SystemCommand]:
    """All actions but those on what is under the transcript's cursor, then strategies, models, personas and more."""
    chat = app.chat
    for action in ACTIONS:
        if action.run is not None and action.where != "transcript":
            shown = f" ({keys})" if (keys := app.keys.shown(action)) else ""
            yield SystemCommand(action.label, action.help + shown, partial(chat.do, action.id))
    for strategy in STRATEGIES.values():
        yield SystemCommand(
            f"Strategy: {strategy.title}", strategy.description, partial(chat.choosing.strategy, strategy.name)
        )
    for pair in app.catalog.pairs:
        yield SystemCommand(f"Model: {_literal(pair.spec.name)}", "Load this pair.", partial(chat.choosing.pair, pair))
    for persona in app.launch.personas:
        about = _literal(persona.system)
        yield SystemCommand(f"Persona: {persona.name}", about, partial(choose_persona, chat, persona.name))
    for preset in app.launch.presets:
        yield SystemCommand(
            f"Preset: {preset.name}",
            f"Sample from the next reply on with {preset_words(preset)}.",
            partial(choose_preset, chat, preset.name),
        )
    for theme in sorted(app.available_themes):
        yield SystemCommand(f"Theme: {_literal(theme)}", "Use this theme.", partial(setattr, app, "theme", theme))
