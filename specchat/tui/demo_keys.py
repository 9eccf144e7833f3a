"""Keys in the built-in pair's replies: to a question in unusual words it names those of an earlier version."""

import re

from specchat.tui.keys import Keys

TAUGHT = {
    "ctrl+j": "newline",
    "ctrl+o": "settings",
    "f2": "settings",
    "ctrl+t": "token-view",
    "ctrl+p": "commands",
    "f1": "help",
    "f3": "models",
    "ctrl+n": "new-chat",
    "ctrl+r": "regenerate",
    "ctrl+y": "copy-reply",
    "ctrl+b": "chats",
    "f6": "race",
    "ctrl+q": "quit",
}
"""The keys that it names, each with the action that it means."""
_KEY = re.compile(r"\b(?:ctrl\+[a-z]|f\d+)\b")


def corrected(reply: str, keys: Keys) -> str:
    """The present keys of the actions for which a reply names others; empty where it names none.

    A reply about the prompt names the keys that it means: ctrl+y puts back there what was taken away.
    """
    if "prompt" in reply.lower():
        return ""
    named = dict.fromkeys(_KEY.findall(reply.lower()))
    moved = [id for key in named if (id := TAUGHT.get(key, "")) and key not in keys.of(id)]
    if not moved:
        return ""
    todays = ", ".join(f"{keys.named(id)} ({keys.by_id[id].title.lower()})" for id in moved)
    return f"the demo learnt older keys; now: {todays}"
