"""The user's actions as data: an `Action` gives key, palette command, slash command, hint and line of help."""

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Where = Literal["anywhere", "prompt", "transcript", "chats"]

PLACES: dict[Where, str] = {
    "prompt": "in the prompt",
    "transcript": "in the transcript",
    "chats": "in the list of chats",
    "anywhere": "everywhere",
}

When = Literal[
    "always",
    "begun",
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
"""When a hint is worth showing: the chat has a prompt; a reply runs or a prompt is edited; a reply has ended; its steps
are known; code, what can be folded or a message with several versions is under the transcript's cursor; it is the token
view; something is in the prompt; an earlier prompt is edited."""


@dataclass(frozen=True)
class Action:
    """`keys` as Textual names them, the first being the one shown; `hint` is its word in the line at the bottom.

    `id` names it in keys.toml. `slash` is its command in the prompt, `argument` what may follow, in words.
    """

    id: str
    label: str
    help: str
    keys: tuple[str, ...] = ()
    hint: str = ""
    hint_editing: str = ""
    """The same while an earlier prompt is edited, where it is another word then."""
    slash: str = ""
    argument: str = ""
    where: Where = "anywhere"
    """Where its keys work: `transcript` and `chats` mean while the transcript or the list of chats has the focus."""
    when: When = "always"
    fixed: bool = False
    """Whether the prompt or Textual itself handles its keys: they cannot be moved, and it has no other command."""

    def binding(self) -> Binding:
        # With priority a key has done its work before the next one of the same burst looks where the focus is.
        return Binding(
            ",".join(self.keys),
            f"screen.do('{self.id}')",
            self.label,
            show=False,
            priority=self.where in ("anywhere", "transcript"),
            id=self.id,
        )


def key_name(key: str) -> str:
    """A key as people write it."""
    if key[0] == "f" and key[1:].isdigit():
        return key.upper()
    return key.replace("escape", "esc").replace("underscore", "_")
