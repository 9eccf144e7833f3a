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
    Action("send", "Send", "Send the prompt; while a reply is written, once that has ended.", keys=("enter",),
           where="prompt"),
    Action("newline", "New line", "Start a new line in the prompt.", keys=("ctrl+j",), where="prompt"),
    Action(
        "stop",
        "Stop",
        "Stop the reply and keep what is there. Twice restarts the engine.",
        lambda chat, _: chat.stop(),
        ("escape",),
        hint="stop",
        applies=lambda chat: chat.session.reply is not None or chat.session.chat.editing is not None,
        slash="stop",
    ),
    Action(
        "help",
        "Help",
        "All keys and what they do.",
        lambda chat, _: chat.choosing.help(),
        ("f1",),
        hint="help",
        slash="help",
    ),
    Action("quit", "Quit", "Leave specchat.", lambda chat, _: chat.app.action_quit(), ("ctrl+q",), hint="quit",
           slash="quit"),
    Action("about", "About", "What is loaded, on which hardware, and why the text is exact.",
           lambda chat, _: chat.choosing.about(), slash="about"),
    Action("suggestion", "Suggestion", "In an empty chat: one of the prompts that are shown.", keys=("1", "2", "3"),
           where="prompt"),
    Action("interrupt", "Interrupt", "Copy what is selected, else stop the reply, else clear the prompt, else say how "
           "to leave; twice within a second leaves.", keys=("ctrl+c",)),
    Action("suspend", "Suspend", "Leave the terminal to the shell, whose fg brings specchat back; undo where the "
           "terminal cannot do that.", lambda chat, _: chat.app.action_suspend_process(), ("ctrl+z",)),
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
        applies=lambda chat: bool((reply := chat.session.last_reply) and reply.steps),
        slash="tokens",
    ),
    Action("panel", "Panel", "Hide or show the engine panel.", lambda chat, _: chat.toggle_panel(), ("alt+p",),
           slash="panel"),
    Action("commands", "Commands", "Search all commands.", keys=("ctrl+p",), hint="commands"),
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
           argument="name",
           values=lambda _: [(strategy.name, strategy.description) for strategy in STRATEGIES.values()]),
    Action(
        "regenerate",
        "Regenerate",
        "Answer again with a new seed, as a branch.",
        lambda chat, _: chat.chats.regenerate(),
        ("ctrl+r",),
        hint="again",
        applies=lambda chat: chat.session.last_reply is not None and chat.session.reply is None,
        slash="again",
    ),
    Action("continue", "Continue", "Go on with a reply that was stopped or ended at its longest, as another version.",
           lambda chat, _: chat.chats.go_on(), slash="continue"),
    Action(
        "copy-reply",
        "Copy reply",
        "Copy the last reply's text.",
        lambda chat, _: chat.copy_reply(),
        ("ctrl+y",),
        slash="copy",
    ),
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
