"""The user's actions. An `Action` gives a key, a palette command, a slash command, a hint and a line of help."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from textual.binding import Binding

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen

Run = Callable[["ChatScreen", str], Awaitable[None] | None]
"""Does it; the text is what followed the slash command, empty otherwise."""

Values = Callable[["ChatScreen"], Sequence[tuple[str, str]]]
"""The arguments that can be completed, each with a word about it."""

Where = Literal["anywhere", "prompt", "transcript", "chats"]

PLACES: dict[Where, str] = {
    "prompt": "in the prompt",
    "transcript": "in the transcript",
    "chats": "in the list of chats",
    "anywhere": "everywhere",
}


@dataclass(frozen=True)
class Action:
    """`keys` as Textual names them, the first being the one shown; `hint` is its word in the line at the bottom.

    `id` names it in keys.toml. `slash` is its command in the prompt, `argument` what may follow, in words. Without
    `run` the key is handled by the prompt or by Textual itself and cannot be moved.
    """

    id: str
    label: str
    help: str
    run: Run | None = None
    keys: tuple[str, ...] = ()
    hint: str = ""
    slash: str = ""
    argument: str = ""
    values: Values | None = None
    applies: Callable[["ChatScreen"], bool] = lambda _: True
    """Whether the hint is worth showing now."""
    where: Where = "anywhere"
    """Where its keys work: `transcript` and `chats` mean while the transcript or the list of chats has the focus."""

    def binding(self) -> Binding:
        return Binding(
            ",".join(self.keys),
            f"screen.do('{self.id}')",
            self.label,
            show=False,
            priority=self.where == "anywhere",
            id=self.id,
        )


def key_name(key: str) -> str:
    """A key as people write it."""
    if key[0] == "f" and key[1:].isdigit():
        return key.upper()
    return key.replace("escape", "esc").replace("underscore", "_")
