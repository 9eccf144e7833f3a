"""An `Action` is something the user can do, with its keys, slash command, hint, line of help and handler."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Literal, TypeVar

from specchat.dataclass import dataclass

Where = Literal["anywhere", "prompt", "transcript", "chats", "call"]

PLACES: dict[Where, str] = {
    "prompt": "in the prompt",
    "transcript": "in the transcript",
    "chats": "in the list of chats",
    "call": "where a call of a tool is asked for",
    "anywhere": "everywhere",
}

When = Literal[
    "always",
    "begun",
    "below",
    "stoppable",
    "answered",
    "recorded",
    "on code",
    "on fold",
    "on versions",
    "in tokens",
    "typed",
    "editing",
]
"""Condition of a hint: the chat has a prompt; a reply is written below the rows in view; a reply runs or a prompt is
edited; a reply has ended; its steps are known; code, what can be folded or a message with several versions is under the
transcript's cursor; it is the token view; something is in the prompt; an earlier prompt is edited."""

Screen = TypeVar("Screen")


@dataclass(frozen=True)
class Action(Generic[Screen]):
    """`keys` as Textual names them, the first being the one shown; `hint` is its word in the line at the bottom.

    `id` names it in keys.toml. `slash` is its command in the prompt, `argument` what may follow, in words.
    """

    id: str
    title: str
    help: str
    run: Callable[[Screen, str], Awaitable[None] | None] | None = None
    """Does it; the text is the slash command's argument, empty otherwise. None where only its keys can do it."""
    keys: tuple[str, ...] = ()
    hint: str = ""
    hint_editing: str = ""
    """The hint while an earlier prompt is edited, if another."""
    slash: str = ""
    argument: str = ""
    values: Callable[[Screen], Sequence[tuple[str, str]]] | None = None
    """Known arguments, each with a word about it: completed in the prompt, listed in the palette."""
    where: Where = "anywhere"
    """Place in which its keys work: in `transcript` and `chats` while the transcript or the list has the focus, in
    `call` while the dialog is shown that asks for a call."""
    when: When = "always"
    fixed: bool = False
    """True if the prompt or Textual itself handles its keys: they cannot be moved."""


def key_name(key: str) -> str:
    """A key as people write it."""
    if key[0] == "f" and key[1:].isdigit():
        return key.upper()
    return key.replace("escape", "esc").replace("underscore", "_")
