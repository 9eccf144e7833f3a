"""Writing prompts: earlier ones, pastes, and commands that set something for the next reply."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from specchat.attachments.files import AttachmentError
from specchat.clean import clean, one_line
from specchat.config.errors import ConfigError
from specchat.config.kinds import NO_PERSONA
from specchat.config.presets import apply, preset_words
from specchat.tui.action import Action
from specchat.tui.actions.models import pair_named, want_pair
from specchat.tui.composing.slash import nearest
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.settings import FIELDS, InvalidValue

OFF = "off"
_UNLIMITED = "unlimited"
_POLICIES = {
    "refuse": "say that it is too long",
    "drop-oldest": "leave out the oldest turns",
    "keep-ends": "keep the first turn, leave out those after it",
}


def _ask(chat: ChatScreen, slash: str, words: str, begin: str = "") -> None:
    """Let the user write the argument that is missing."""
    chat.prompt.begin(f"/{slash} {begin}")
    chat.say(words)


def _done(chat: ChatScreen, words: str) -> None:
    chat.redraw()
    chat.composer.count_soon()
    chat.say(words)


def _setting(key: str, slash: str, off: str = "") -> Callable[[ChatScreen, str], None]:
    """Sets a field of the settings panel; `off` says what the value off does, where there is one."""
    field = next(field for field in FIELDS if field.key == key)

    def run(chat: ChatScreen, argument: str) -> None:
        session = chat.session
        if not argument:
            help = f" ({field.help})" * (not off)  # of fields with "off" it speaks of an empty field, as in the panel
            _ask(chat, slash, f"{field.label} is {field.show(session.settings) or off}{help}")
            return
        try:
            settings = field.store(session.settings, "" if off and argument == OFF else argument)
        except InvalidValue as error:
            chat.give_back(f"/{slash} {argument}", f"/{slash} {error}")
            return
        session.change(settings)
        when = field.moot(settings) or ("from the next step on" if field.live else "from the next reply on")
        _done(chat, f"{field.label} is {field.show(settings) or off}, {when}")

    return run


def _preset(chat: ChatScreen, name: str) -> None:
    """Sample as a preset says; without a name, ask for one."""
    presets = {preset.name: preset for preset in chat.session.launch.config.presets}
    if not name:
        _ask(chat, "preset", f"Choose one: {', '.join(presets)}" if presets else "there are no presets")
    elif name not in presets:
        chat.give_back(f"/preset {name}", f"there is no preset {one_line(name, 40)}{nearest(name, presets)}")
    else:
        settings = chat.session.settings
        chat.session.change(replace(settings, sampling=apply(presets[name], settings.sampling)))
        _done(chat, f"preset {name} ({preset_words(presets[name])}), from the next reply on")


async def _persona(chat: ChatScreen, name: str) -> None:
    """Give the chat a persona's system prompt, and load its pair if it has one; without a name, ask for one."""
    session = chat.session
    personas = {persona.name: persona for persona in session.launch.service.personas}
    if not name:
        _ask(chat, "persona", f"Choose one: {', '.join([NO_PERSONA, *personas])}")
    elif name == NO_PERSONA:
        session.chat.set_system("")
        _done(chat, "no persona and no system prompt, from the next reply on")
    elif name not in personas:
        chat.give_back(f"/persona {name}", f"there is no persona {one_line(name, 40)}{nearest(name, personas)}")
    else:
        persona = personas[name]
        session.chat.set_system(persona.system)
        _done(chat, f"persona {name}, from the next reply on")
        pair = await pair_named(chat, persona.pair) if persona.pair else None
        if isinstance(pair, str):
            chat.say(f"persona {name} goes without its pair: {pair}", bad=True)
        elif pair is not None and pair.id != session.loaded.id:
            want_pair(chat, pair)


def _system(chat: ChatScreen, text: str) -> None:
    conversation = chat.session.conversation
    if not text:
        words = "write what the model should always keep to" if not conversation.system else "off takes it away"
        _ask(chat, "system", words, conversation.system)
        return
    chat.session.chat.set_system("" if text == OFF else text)
    _done(chat, f"{'no system' if text == OFF else 'system'} prompt, from the next reply on")


def _prefill(chat: ChatScreen, text: str) -> None:
    if not text:
        _ask(chat, "prefill", "write what the next reply is to begin with, or off")
        return
    chat.session.prefill = "" if text == OFF else text
    _done(chat, "")


def _themes(chat: ChatScreen) -> list[tuple[str, str]]:
    """Names of themes: of specchat and the user first, then of Textual."""
    own = [theme.name for theme in chat.themes]
    return [(name, "") for name in (*own, *sorted(chat.app.available_themes.keys() - set(own)))]


def _theme(chat: ChatScreen, name: str) -> None:
    if not name:
        _ask(chat, "theme", f"the theme is {one_line(chat.app.theme, 40)}")
    elif name not in chat.app.available_themes:
        offer = nearest(name, chat.app.available_themes)
        chat.give_back(f"/theme {name}", f"there is no theme {one_line(name, 40)}{offer}")
    else:
        chat.app.theme = name
        if (remember := chat.session.launch.config.remember) is not None:
            try:
                remember("theme", name)
            except Exception as error:
                chat.say(clean(str(error)), bad=True)


def _search_prompts(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.history import HistoryScreen

    def found(number: int | None) -> None:
        if number is not None:
            chat.prompt.fill(chat.history.go_to(number, chat.prompt.prompt))
        chat.set_focus(chat.prompt)

    chat.app.push_screen(HistoryScreen(chat.history), found)


def _unfold(chat: ChatScreen, _: str) -> None:
    if refusal := chat.prompt.unfold_paste():
        chat.say(refusal, bad=True)


def _paste(chat: ChatScreen, _: str) -> None:
    chat.run_worker(_paste_picture(chat), group="paste", exclusive=True, exit_on_error=False)


async def _paste_picture(chat: ChatScreen) -> None:
    """Attach the clipboard's picture; where it has none, put what was copied in the app into the box."""
    from specchat.tui.composing.pasted import pasted_picture

    folder, path, words = chat.session.launch.pasted, "", "the clipboard has no picture; the terminal pastes text"
    try:
        path = await asyncio.to_thread(pasted_picture, folder) if folder is not None else ""
    except AttachmentError as error:
        words = error.message
    if path:
        chat.prompt.attach(path)
    elif chat.app.clipboard:
        chat.prompt.action_paste()
    else:
        chat.say(words, bad=True)


def _personas(chat: ChatScreen) -> Sequence[tuple[str, str]]:
    known = [(persona.name, persona.system) for persona in chat.session.launch.service.personas]
    return [(NO_PERSONA, "no system prompt"), *known]


def _save_prompt(chat: ChatScreen, argument: str) -> None:
    """Keep a text under a name: what follows the name, or else the chat's last prompt."""
    name, _, text = argument.partition(" ") if " " in argument.split("\n")[0] else argument.partition("\n")
    turns = chat.session.conversation.turns
    text = text.strip() or (turns[-1].prompt if turns else "")
    if not name or not text:
        _ask(chat, "save-prompt", "write a name, and the text; {words in braces} are blanks to fill in", f"{name} ")
        return
    try:
        if name in chat.keys.by_slash:
            raise ConfigError(f"/{name} is a command. Choose another name.")
        chat.session.launch.config.prompts.save(name, text)
    except ConfigError as error:
        chat.give_back(f"/save-prompt {argument}", error.message)
    else:
        _done(chat, f"/{name} brings this prompt from here on" + ("; tab goes through its blanks" * ("{" in text)))


COMPOSING: tuple[Action[ChatScreen], ...] = (
    Action("persona", "Persona", "Give the chat another system prompt by its name.", _persona, slash="persona",
           argument="name", values=_personas),
    Action("preset", "Preset", "Sample in another way by its name.", _preset, slash="preset", argument="name",
           values=lambda chat: [(preset.name, preset_words(preset)) for preset in chat.session.launch.config.presets]),
    Action("system", "System prompt", "Write the chat's own system prompt, or take it away.", _system, slash="system",
           argument="text or off"),
    Action("prefill", "Prefill", "Let the next reply begin with these words.", _prefill, slash="prefill",
           argument="text or off"),
    Action("seed", "Seed", "Make all replies with one seed, or draw a new one for each.",
           _setting("seed", "seed", "new for each reply"), slash="seed", argument="number or off",
           values=lambda _: [(OFF, "a new one for each reply")]),
    Action("temperature", "Temperature", "How far replies may stray from the likeliest token.",
           _setting("temperature", "temperature"), slash="temperature", argument="number"),
    Action("length", "Draft length", "How many tokens are drafted a step.", _setting("draft_length", "length"),
           slash="length", argument="number"),
    Action("max-tokens", "Longest reply", "How many tokens a reply may have at most.",
           _setting("max_tokens", "max-tokens", _UNLIMITED), slash="max-tokens", argument="number or off",
           values=lambda _: [(OFF, "until the context is full")]),
    Action("context", "Context", "What is left out where a chat does not fit the context.",
           _setting("context", "context"), slash="context", argument="refuse, drop-oldest or keep-ends",
           values=lambda _: list(_POLICIES.items())),
    Action("theme", "Theme", "Use other colours.", _theme, slash="theme", argument="name",
           values=_themes),
    Action("search-prompts", "Search prompts", "Search earlier prompts and put one into the box.", _search_prompts,
           ("ctrl+r", "ctrl+s"), slash="history"),
    Action("save-prompt", "Save a prompt", "Keep a prompt under a name, which then is its command.", _save_prompt,
           slash="save-prompt", argument="name and text"),
    Action("undo", "Undo", "Take back the last change of the prompt.", lambda chat, _: chat.prompt.action_undo(),
           ("ctrl+underscore",), where="prompt"),
    Action("unfold-paste", "Unfold paste", "Put a folded paste at the cursor into the box, to edit it.", _unfold,
           ("ctrl+g",), where="prompt"),
    Action("paste-picture", "Paste", "Attach the clipboard's picture, or put in what was copied here.", _paste,
           ("ctrl+v",), where="prompt"),
)  # fmt: skip
