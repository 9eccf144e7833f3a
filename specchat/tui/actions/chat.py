"""Replies, drafting, models and the app itself."""

from typing import TYPE_CHECKING

from specchat.clean import one_line
from specchat.engine.strategies import STRATEGIES
from specchat.tui.actions.action import Action
from specchat.tui.composing.slash import nearest

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen


def _strategy(chat: "ChatScreen", argument: str) -> None:
    if argument in STRATEGIES:
        chat.choosing.strategy(argument)
    elif argument:
        chat.prompt.restore(f"/strategy {argument}")
        chat.say(f"there is no strategy {one_line(argument, 40)}{nearest(argument, STRATEGIES)}", bad=True)
    else:
        chat.choosing.settings()


def _model(chat: "ChatScreen", name: str) -> None:
    pairs = {pair.spec.id: pair for pair in chat.catalog.pairs}
    if name in pairs:
        chat.choosing.pair(pairs[name])
    elif name:
        chat.prompt.restore(f"/model {name}")
        chat.say(f"there is no pair {one_line(name, 40)}{nearest(name, pairs)}", bad=True)
    else:
        chat.choosing.pairs()


CHAT = (
    Action("send", "Send", "Send the prompt. While a reply runs, the text is kept.", keys=("enter",), where="prompt"),
    Action("newline", "New line", "Start a new line in the prompt.", keys=("ctrl+j",), where="prompt"),
    Action(
        "stop",
        "Stop",
        "Stop the reply and keep what is there. Twice restarts the engine.",
        lambda chat, _: chat.stop(),
        ("escape",),
        hint="stop",
        slash="stop",
    ),
    Action(
        "settings",
        "Settings",
        "Strategy, draft length, sampling, seed and theme.",
        lambda chat, _: chat.choosing.settings(),
        ("ctrl+o", "f2"),
        hint="settings",
        slash="settings",
    ),
    Action(
        "token-view",
        "Token view",
        "Colour the reply by where each token came from.",
        lambda chat, _: chat.toggle_token_view(),
        ("ctrl+t",),
        hint="tokens",
        slash="tokens",
    ),
    Action("commands", "Commands", "Search all commands.", keys=("ctrl+p",), hint="commands"),
    Action(
        "help",
        "Help",
        "All keys and what they do.",
        lambda chat, _: chat.choosing.help(),
        ("f1",),
        hint="help",
        slash="help",
    ),
    Action(
        "models",
        "Models",
        "Choose another pair of models.",
        _model,
        ("f3",),
        hint="models",
        slash="model",
        argument="pair",
        values=lambda chat: [(pair.spec.id, pair.spec.name) for pair in chat.catalog.pairs],
    ),
    Action("strategy", "Strategy", "Draft in another way from the next step on.", _strategy, slash="strategy",
           argument="plain, draft, lookup or swift",
           values=lambda _: [(strategy.name, strategy.description) for strategy in STRATEGIES.values()]),
    Action(
        "regenerate",
        "Regenerate",
        "Answer again with a new seed, as a branch.",
        lambda chat, _: chat.chats.regenerate(),
        ("ctrl+r",),
        slash="again",
    ),
    Action(
        "copy-reply",
        "Copy reply",
        "Copy the last reply's text.",
        lambda chat, _: chat.copy_reply(),
        ("ctrl+y",),
        slash="copy",
    ),
    Action("quit", "Quit", "Leave specchat.", lambda chat, _: chat.app.action_quit(), ("ctrl+q",), slash="quit"),
    Action(
        "history",
        "Prompt history",
        "Earlier prompts, at the prompt's first and last row.",
        keys=("up", "down"),
        where="prompt",
    ),
    Action("scroll", "Scroll", "Move through the chat.", keys=("pageup", "pagedown")),
    Action(
        "follow",
        "Follow",
        "Jump to the end of the chat and stay there.",
        lambda chat, _: chat.transcript.follow(),
        ("ctrl+end",),
    ),
)  # fmt: skip
