"""All keys of the app in one table; the bindings, the hints, the help screen and docs/keys.md come from it."""

from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True)
class Key:
    """`keys` as Textual names them, the first being the one shown. `hint` is its word in the line at the bottom."""

    keys: tuple[str, ...]
    action: str
    label: str
    help: str
    hint: str = ""
    bound: bool = True
    """False where the prompt or Textual itself handles the key."""

    @property
    def shown(self) -> str:
        return " or ".join(key_name(key) for key in self.keys)

    def binding(self) -> Binding:
        return Binding(",".join(self.keys), self.action, self.label, show=False, priority=True)


def key_name(key: str) -> str:
    """A key as people write it."""
    return key.upper() if key[0] == "f" and key[1:].isdigit() else key.replace("escape", "esc")


KEYS: tuple[Key, ...] = (
    Key(("enter",), "send", "Send", "Send the prompt. While a reply runs, the text is kept.", bound=False),
    Key(("ctrl+j",), "newline", "New line", "Start a new line in the prompt.", bound=False),
    Key(("escape",), "stop", "Stop", "Stop the reply and keep what is there. Twice restarts the engine.", "stop"),
    Key(("ctrl+o", "f2"), "settings", "Settings", "Strategy, draft length, sampling, seed and theme.", "settings"),
    Key(("ctrl+t",), "token_view", "Token view", "Colour the reply by where each token came from.", "tokens"),
    Key(("ctrl+p",), "app.command_palette", "Commands", "Search all commands.", "commands", bound=False),
    Key(("f1",), "help", "Help", "All keys and what they do.", "help"),
    Key(("f3",), "pairs", "Models", "Choose another pair of models.", "models"),
    Key(("ctrl+n",), "new_chat", "New chat", "Start an empty chat.", "new"),
    Key(("ctrl+r",), "regenerate", "Regenerate", "Answer the same prompt again with a new seed."),
    Key(("ctrl+y",), "copy_reply", "Copy reply", "Copy the last reply's text."),
    Key(("ctrl+q",), "app.quit", "Quit", "Leave specchat.", bound=False),
    Key(
        ("up", "down"), "history", "Prompt history", "Earlier prompts, at the prompt's first and last row.", bound=False
    ),
    Key(("pageup", "pagedown"), "scroll", "Scroll", "Move through the chat.", bound=False),
    Key(("ctrl+end",), "follow", "Follow", "Jump to the end of the chat and stay there."),
)


def as_markdown() -> str:
    """docs/keys.md; `python -m specchat.tui.keys > docs/keys.md` writes it."""
    rows = [f"| {' or '.join(f'`{key_name(k)}`' for k in key.keys)} | {key.label} | {key.help} |" for key in KEYS]
    table = "\n".join(["| Key | | What it does |", "|---|---|---|", *rows])
    return f"# Keys\n\nWritten from `specchat/tui/keys.py`.\n\n{table}\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
