"""All actions in one table."""

from specchat.tui.action import PLACES, Action, key_name
from specchat.tui.actions.branches import BRANCHES
from specchat.tui.actions.chat import CHAT
from specchat.tui.actions.chats import CHATS
from specchat.tui.actions.comparing import COMPARING
from specchat.tui.actions.composing import COMPOSING
from specchat.tui.actions.files import FILES
from specchat.tui.actions.reading import READING
from specchat.tui.actions.running import RUNNING
from specchat.tui.actions.speculation import SPECULATION
from specchat.tui.actions.tools import TOOLS
from specchat.tui.actions.tuning import TUNING
from specchat.tui.screens.chat import ChatScreen

ACTIONS: tuple[Action[ChatScreen], ...] = (
    *CHAT, *COMPARING, *READING, *SPECULATION, *BRANCHES, *CHATS, *FILES, *COMPOSING, *TOOLS, *TUNING, *RUNNING,
)  # fmt: skip


def as_markdown() -> str:
    """docs/keys.md; `python -m specchat.tui.actions.table > docs/keys.md` writes it."""
    parts = ["# Keys and commands\n\nWritten from `specchat/tui/actions`. `id` is the name in `keys.toml`.\n"]
    for where, title in sorted(PLACES.items(), key=lambda place: place[0] != "anywhere"):
        rows = [_row(action) for action in ACTIONS if action.where == where]
        head = "| Key | Slash | | What it does | id |\n|---|---|---|---|---|"
        parts.append("\n".join([f"## {title.capitalize()}\n", head, *rows]) + "\n")
    return "\n".join(parts)


def _row(action: Action[ChatScreen]) -> str:
    keys = " or ".join(f"`{key_name(key)}`" for key in action.keys)
    slash = f"`/{action.slash}{f' {action.argument}' * bool(action.argument)}`" if action.slash else ""
    return f"| {keys} | {slash} | {action.title} | {action.help} | {'' if action.fixed else f'`{action.id}`'} |"


if __name__ == "__main__":
    print(as_markdown(), end="")
