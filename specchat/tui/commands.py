"""The commands of the palette."""

from collections.abc import Iterable
from functools import partial

from textual.app import SystemCommand

from specchat.clean import one_line
from specchat.engine.strategies import STRATEGIES
from specchat.tui.actions.table import ACTIONS
from specchat.tui.composing.personas import preset_words
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.verbs.choosing import use_pair, use_strategy
from specchat.tui.verbs.composing import choose_persona, choose_preset


def _literal(text: str) -> str:
    """`text` for the palette, which reads its entries as markup: brackets become look-alikes."""
    return one_line(text, 80).replace("[", "⟦").replace("]", "⟧")


def commands(chat: ChatScreen) -> Iterable[SystemCommand]:
    """All actions but those on what is under the transcript's cursor, then strategies, models, personas and more."""
    app, launch = chat.app, chat.session.launch
    for action in ACTIONS:
        if not action.fixed and action.where != "transcript":
            shown = f" ({keys})" if (keys := chat.keys.shown(action)) else ""
            yield SystemCommand(action.label, action.help + shown, partial(chat.do, action.id))
    for strategy in STRATEGIES.values():
        use = partial(use_strategy, chat, strategy.name)
        yield SystemCommand(f"Strategy: {strategy.title}", strategy.summary, use)
    for pair in chat.catalog.pairs:
        yield SystemCommand(f"Model: {_literal(pair.spec.name)}", "Load this pair.", partial(use_pair, chat, pair))
    for persona in launch.personas:
        about = _literal(persona.system)
        yield SystemCommand(f"Persona: {persona.name}", about, partial(choose_persona, chat, persona.name))
    for preset in launch.presets:
        yield SystemCommand(
            f"Preset: {preset.name}",
            f"Sample from the next reply on with {preset_words(preset)}.",
            partial(choose_preset, chat, preset.name),
        )
    for theme in sorted(app.available_themes):
        yield SystemCommand(f"Theme: {_literal(theme)}", "Use this theme.", partial(setattr, app, "theme", theme))
