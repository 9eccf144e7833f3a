"""A few whole screens; `pytest --snapshot-update tests/tui/test_looks.py` accepts a new look."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from conftest import LAUNCH, ask, loaded, make_app, screen_text
from textual.pilot import Pilot

from specchat.engine.protocol.options import Written
from specchat.service.settings import Preferences
from specchat.tui import chat_list
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.board import Board
from tests.fake import FakeEngine
from tests.parts import changed
from tests.service.tool_servers import ScriptedServers, calling

REPLY = """Once there was a small **fox** who kept a lamp, and read from `book.txt` (see [here](https://x.y)).

## What she read

1. A story about a river that went on for a long long way through the woods and beyond
2. Another one
   - with a nested point

```python
def light(lamp: Lamp) -> None:
    for wick in lamp.wicks:  # each of them
        wick.burn(3.5, "warm")
```

| thing | cost |
|-------|-----:|
| oil   | 2.50 |

> Light is not for hiding.
"""


THOUGHT = Written.of([("The user wants a story. It should have a fox.", True), ("\n\n" + REPLY, False)])

LOOKS = {
    "chat": ("ink", (120, 36), ()),
    "tokens": ("dusk", (80, 24), ("ctrl+t",)),
    "settings": ("paper", (100, 30), ("ctrl+o",)),
    "small": ("contrast", (60, 15), ()),
    "chats": ("ink", (120, 36), ("ctrl+b",)),
    "chats-narrow": ("dusk", (60, 20), ("ctrl+b",)),
    "find": ("ink", (100, 30), ("ctrl+f", *"lamp")),
    "jump": ("hearth", (100, 30), ("ctrl+up", "f")),
    "token-cursor": ("lagoon", (110, 30), ("ctrl+t", "ctrl+up", *"kkkkll")),
    "commands": ("ink", (100, 24), ("/", "s")),
    "what-if": ("graphite", (100, 36), ("f10",)),
    "replay": ("mist", (100, 30), ("f12", "home", *["right"] * 7)),
    "help": ("contrast-light", (100, 30), ("f1",)),
    "terminal": ("terminal", (120, 36), ()),
    "wide": ("paper", (200, 60), ("ctrl+b",)),
}


async def still(pilot: Pilot[None], times: int = 1) -> None:
    """Wait until the screen has looked the same for so many tenths of a second."""
    looks = [screen_text(pilot.app)]
    while len(looks) <= times or len(set(looks[-times - 1 :])) > 1:
        assert len(looks) < 200, "the screen never comes to rest"
        await pilot.pause(0.1)
        looks.append(screen_text(pilot.app))


TREE_LOOKS = {
    "tree-cursor": ("ink", (110, 30), ("ctrl+t", "ctrl+up", *"kkkkwll")),
    "tree-replay": ("mist", (100, 30), ("f12", "home", *["right"] * 6)),
}
"""With drafts that are trees."""


@pytest.fixture(autouse=True)
def _one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_list, "clock_time", lambda *_: "14:05")


@pytest.mark.parametrize(("theme", "size", "keys"), LOOKS.values(), ids=LOOKS)
def test_looks(snap_compare: Callable[..., bool], theme: str, size: tuple[int, int], keys: tuple[str, ...]) -> None:
    app = make_app(
        FakeEngine((THOUGHT if theme == "hearth" else REPLY,)),
        changed(LAUNCH, theme=theme, preferences=Preferences(seed=42)),
    )
    assert snap_compare(app, terminal_size=size, run_before=prepared(app, keys))


@pytest.mark.parametrize(("theme", "size", "keys"), TREE_LOOKS.values(), ids=TREE_LOOKS)
def test_looks_of_trees(
    snap_compare: Callable[..., bool], theme: str, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    pair = replace(LAUNCH.pair, lengths={"draft": 12})
    app = make_app(
        FakeEngine((REPLY,), candidates=3), changed(LAUNCH, pair=pair, theme=theme, preferences=Preferences(seed=42))
    )
    assert snap_compare(app, terminal_size=size, run_before=prepared(app, keys))


CALL = calling(("read", '{"path": "fox.txt", "lines": "first\\nlast"}'), text="Let me look into it.")
TOOL_LOOKS: dict[str, tuple[str, tuple[int, int], tuple[str, ...]]] = {
    "permission": ("dusk", (80, 24), ()),
    "calls": ("paper", (80, 24), ("alt+y", "ctrl+up", *"kkkkkk", "enter")),
    "servers": ("ink", (80, 24), ("escape", "/", *"tools", "enter", "down")),
}


@pytest.mark.parametrize(("theme", "size", "keys"), TOOL_LOOKS.values(), ids=TOOL_LOOKS)
def test_looks_of_tools(
    snap_compare: Callable[..., bool], theme: str, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    servers = ScriptedServers(answers="Once there was a fox.\nShe kept a lamp.")
    launch = changed(LAUNCH, servers=servers, uses_tools=True, theme=theme, preferences=Preferences(seed=42))
    app = make_app(FakeEngine((CALL, "It tells of a fox and her lamp.")), launch)
    assert snap_compare(app, terminal_size=size, run_before=prepared(app, keys))


def prepared(app: SpecchatApp, keys: tuple[str, ...]) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Ask, and press `keys` once the answer is there."""

    async def prepare(pilot: Pilot[None]) -> None:
        await loaded(app, pilot)
        await ask(app, pilot, "Tell me a story about a fox and a lamp.")
        for key in keys:
            await pilot.press(key)
            if isinstance(app.screen, Board):
                app.screen.advance(60)
            await still(pilot)
        await still(pilot, times=3)

    return prepare
