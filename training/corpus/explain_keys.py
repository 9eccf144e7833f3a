"""specchat's keys, commands and files."""

from __future__ import annotations

from random import Random

from specchat.tui.action import key_name
from specchat.tui.actions.table import ACTIONS
from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.phrasing import around

_ACTIONS: tuple[tuple[str, str, str], ...] = (
    ("send", "sends your message", "send a message|send my text|submit the prompt"),
    ("newline", "starts a new line in the prompt", "write a new line|add a line break|type several lines"),
    ("stop", "stops the reply", "stop the reply|interrupt the model|cancel generation|make it stop"),
    (
        "settings",
        "opens the settings",
        "open the settings|change the temperature|change the draft length|find the settings",
    ),
    (
        "token-view",
        "switches the token view on and off",
        "see the tokens|open the token view|show which tokens were accepted",
    ),
    ("commands", "opens the command palette", "open the command palette|find a command|search the commands"),
    ("help", "opens the help", "get help|open the help|see all keys|show the keys"),
    (
        "models",
        "lets you choose the pair of models",
        "choose a model|change the model|switch the pair|select another pair",
    ),
    ("new-chat", "starts a new chat", "start a new chat|clear the chat|begin again|open a new conversation"),
    (
        "regenerate",
        "writes the last reply again",
        "regenerate the reply|get another answer|try the reply again|redo the answer",
    ),
    ("copy-reply", "copies the last reply", "copy the reply|copy the answer|put the reply on the clipboard"),
    ("chats", "shows your saved chats", "see my chats|open an old chat|find a saved chat|list my chats"),
    ("race", "races plain decoding against the draft", "start a race|compare plain and draft|race the strategies"),
    ("read", "goes to the transcript", "read the transcript|scroll with the keyboard|move to the reply"),
    ("quit", "quits specchat", "quit|exit the program|leave specchat|close the app"),
    (
        "history",
        "walk through your earlier prompts",
        "see my earlier prompts|get my last prompt back|use the prompt history",
    ),
)

_OTHERS = {"newline": "Ctrl+J", "read": "Tab", "history": "Up and Down"}
"""Actions with several keys, of which this one is taught."""


_OF_THE_PROMPT = (
    ("history", "walks through your earlier prompts"),
    ("search-prompts", "searches your earlier prompts"),
    ("kill", "takes away a part of the prompt or puts it back"),
)
"""Actions of which one asks what their keys do, but not for the keys."""


def _named(id: str) -> list[str]:
    """The keys of an action as the app's table has them."""
    (action,) = (action for action in ACTIONS if action.id == id)
    return [key_name(key).title() for key in action.keys]


KEYS = tuple((_OTHERS.get(id) or " or ".join(_named(id)), does, goals) for id, does, goals in _ACTIONS)
_DOES = (
    *((key, does) for keys, does, _ in KEYS if " and " not in keys for key in keys.split(" or ")),
    *((key, does) for id, does in _OF_THE_PROMPT for key in _named(id)),
)
"""Single keys and what they do."""

COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("`specchat`", "starts the chat", "start specchat|start the chat|run the program|open the app"),
    (
        '`specchat ask "..."`',
        "answers one question in the shell",
        "ask from the shell|ask one question without the app|use it in a script",
    ),
    ("`specchat models`", "lists the models and pairs", "list the models|see which models I have|show the pairs"),
    (
        "`specchat check`",
        "tests that your setup works",
        "check my setup|test the installation|see whether everything works",
    ),
    (
        "`specchat paths`",
        "shows where the files are",
        "find the files|see where the settings are stored|find models.toml",
    ),
    (
        "`models.toml`",
        "is the file in which you add models and pairs",
        "add a model|add my own pair|configure models|register a pair",
    ),
)

_ASK = (
    "How do I {g}?|How can I {g}?|Which key do I press to {g}?|Which key is it to {g}?|what do i press to {g}|Is"
    " there a key to {g}?|I would like to {g}, how?|What is the shortcut to {g}?|Where do I {g}?|Tell me how to"
    " {g}.|How would I {g}?|key to {g}?|I need to {g}.|how can i {g} here|What do I have to press to {g}?|Can you"
    " tell me how to {g}?|How does one {g}?|I want to {g}.|What is the key to {g}?|Can I {g}?|how to {g}"
)
_ASK_COMMAND = "How do I {g}?|How can I {g}?|What command do I use to {g}?|I want to {g}.|how to {g}|Can I {g}?"
_WHAT = "What does {k} do?|What is {k} for?|What happens with {k}?|{k}?|Explain {k}."


def key_turn(rng: Random) -> list[Message]:
    """A question about a key, a command or the list of them."""
    chance = rng.random()
    if chance < 0.1:
        ask = pick(
            rng,
            "What keys are there?|List the keys.|What are the keys?|Tell me the keys.|all shortcuts please|Show the"
            " key bindings.|Is there a list of keys?|Which shortcuts are there?|Can you list the keyboard"
            " shortcuts?|hotkeys?|Show me all shortcuts.|Which keys can I use?|Give me a table of the keys.|keyboard"
            " shortcuts?",
        )
        answer = "| key | what it does |\n|---|---|\n" + "\n".join(f"| {key} | {does} |" for key, does, _ in KEYS)
        return [user(typed(rng, ask)), assistant(answer)]
    if chance < 0.17:
        ask = pick(
            rng,
            "What commands are there?|List the commands.|Which commands does specchat have?|How do I use specchat in"
            " the shell?",
        )
        answer = "\n".join(f"- {command} {does}" for command, does, _ in COMMANDS[:5])
        return [user(typed(rng, ask)), assistant(f"These are the commands:\n\n{answer}")]
    if chance < 0.72:
        if rng.random() < 0.4:
            key, does = rng.choice(_DOES)
            return [user(typed(rng, pick(rng, _WHAT).format(k=key))), assistant(f"**{key}** {does}.")]
        key, does, goals = rng.choice(KEYS)
        goal = pick(rng, goals)
        press = "Use the keys" if key.startswith("Up") else "Press"
        answer = f"{press} **{key}** to {goal}." if " my" not in goal else f"{press} **{key}**. It {does}."
        return [
            user(around(rng, typed(rng, pick(rng, _ASK).format(g=goal)), 0.1)),
            assistant(answer.replace("make it stop", "stop the reply")),
        ]
    command, does, goals = rng.choice(COMMANDS)
    if rng.random() < 0.35:
        return [user(typed(rng, pick(rng, _WHAT).format(k=command))), assistant(f"{command} {does}.")]
    verb = "Edit" if "toml" in command else "Run"
    return [
        user(typed(rng, pick(rng, _ASK_COMMAND).format(g=pick(rng, goals)))),
        assistant(f"{verb} {command}. It {does}."),
    ]


def make(rng: Random) -> list[Message]:
    """One to three questions about keys and commands."""
    return with_system(rng, [message for _ in range(rng.choice((1, 1, 2, 3))) for message in key_turn(rng)])
