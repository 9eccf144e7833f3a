"""Replies, drafting, models and the app itself."""

from specchat.clean import one_line
from specchat.engine.strategies import STRATEGIES
from specchat.tui.actions.verb import Verb
from specchat.tui.composing.slash import nearest
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.verbs.choosing import choose_pair, choose_settings, use_pair, use_strategy
from specchat.tui.verbs.fetching import want_pair
from specchat.tui.verbs.reading import copy_reply


def _strategy(chat: ChatScreen, argument: str) -> None:
    if argument in STRATEGIES:
        use_strategy(chat, argument)
    elif argument:
        chat.prompt.restore(f"/strategy {argument}")
        chat.say(f"there is no strategy {one_line(argument, 40)}{nearest(argument, STRATEGIES)}", bad=True)
    else:
        choose_settings(chat)


def _model(chat: ChatScreen, name: str) -> None:
    pairs = {pair.spec.id: pair for pair in chat.catalog.pairs}
    if name in pairs:
        want_pair(chat, pairs[name], use_pair)
    elif name:
        chat.prompt.restore(f"/model {name}")
        near = nearest(name, pairs) or "; F3 shows all"
        chat.say(f"there is no pair {one_line(name, 40)}{near}", bad=True)
    else:
        choose_pair(chat)


def _about(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.about import AboutScreen

    loaded = chat.session.loaded
    chat.app.push_screen(AboutScreen(loaded.info, loaded.name if loaded.loading is not None else ""))


def _help(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.help import HelpScreen

    chat.app.push_screen(HelpScreen(chat.keys, chat.place))


CHAT: dict[str, Verb[ChatScreen]] = {
    "newline": Verb(lambda chat, _: chat.prompt.action_newline()),
    "stop": Verb(lambda chat, _: chat.stop()),
    "help": Verb(_help),
    "quit": Verb(lambda chat, _: chat.app.action_quit()),
    "about": Verb(_about),
    "suspend": Verb(lambda chat, _: chat.app.action_suspend_process()),
    "commands": Verb(lambda chat, _: chat.app.action_command_palette()),
    "settings": Verb(lambda chat, _: choose_settings(chat)),
    "token-view": Verb(lambda chat, _: chat.reading.toggle_token_view()),
    "panel": Verb(lambda chat, _: chat.toggle_panel()),
    "models": Verb(_model, lambda chat: [(pair.spec.id, pair.spec.name) for pair in chat.catalog.pairs]),
    "strategy": Verb(_strategy, lambda _: [(strategy.name, strategy.summary) for strategy in STRATEGIES.values()]),
    "regenerate": Verb(lambda chat, _: chat.chats.regenerate()),
    "continue": Verb(lambda chat, _: chat.chats.go_on()),
    "copy-reply": Verb(lambda chat, _: copy_reply(chat)),
    "follow": Verb(lambda chat, _: chat.transcript.follow()),
}
