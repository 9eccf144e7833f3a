"""Random keys, sizes and engine events: the app never crashes and still answers afterwards."""

import os
import random
from pathlib import Path
from time import monotonic

import pytest
from conftest import CATALOG, LAUNCH, ask, make_app, wait_until
from textual import events

from specchat.engine.fake import FakeEngine
from specchat.tui.app import SpecchatApp

KEYS = [
    "enter", "ctrl+j", "escape", "ctrl+o", "f2", "ctrl+t", "ctrl+p", "f1", "f3", "ctrl+n", "ctrl+r", "ctrl+y",
    "f4", "f6", "f10", "f12",
    "up", "down", "left", "right", "pageup", "pagedown", "ctrl+end", "tab", "shift+tab", "space", "backspace", "delete",
    "slash", "at", "ctrl+s", "ctrl+g",
    "home", "end", "ctrl+a", "ctrl+k", "ctrl+z", "ctrl+c", "ctrl+v", "a", "x", "1", "0", ".", "[", "`", "-",
    "ctrl+up", "ctrl+f", "j", "k", "g", "G", "]", "J", "K", "y", "c", "n", "N", "f", "m", "z", "t", "h", "l", "slash",
    "ctrl+d", "ctrl+u", "i", "o", "ctrl+l",
]  # fmt: skip
REPLIES = (
    "Once there was a fox.\n\n```python\nprint(1)\n```\n\n- a\n- b\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\n" * 10,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 漢字 " * 60,
    "x" * 3000,
    "<think>\nlet me see\n</think>\n\nSee [a](https://x.y), $x_1$.\n\n$$\nx\n$$\n" * 3,
)
SECONDS = float(os.environ.get("SPECCHAT_MONKEY_SECONDS", "8"))
SEED = int(os.environ.get("SPECCHAT_MONKEY_SEED", "1"))


async def test_monkey(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where chats may be saved
    monkeypatch.setattr(SpecchatApp, "exit", lambda _: None)
    monkeypatch.setattr(SpecchatApp, "open_url", lambda *_: None)
    chance = random.Random(SEED)
    engine = FakeEngine(REPLIES, tokens_per_second=300)
    app = make_app(engine, LAUNCH)
    done: list[str] = []
    async with app.run_test(size=(100, 30)) as pilot:
        end = monotonic() + SECONDS
        while monotonic() < end:
            roll = chance.random()
            if roll < 0.90:
                done.append(chance.choice(KEYS))
                await pilot.press(done[-1])
            elif roll < 0.94:
                width, height = chance.randint(3, 180), chance.randint(2, 60)
                done.append(f"resize {width}x{height}")
                await pilot.resize_terminal(width, height)
            elif roll < 0.96:
                done.append("die")
                engine.die()
            elif roll < 0.97:
                done.append("fail")
                engine.fail_reply("memory", "out of [memory]")
            elif roll < 0.98:
                done.append("switch")
                app.chat.choose_pair(chance.choice(CATALOG.pairs))
            else:
                done.append("paste")
                app.chat.prompt.post_message(events.Paste(chance.choice(REPLIES) * chance.randint(1, 30)))
            if app._exception is not None or not app.is_running:
                raise AssertionError(f"seed {SEED}: crashed after {done[-30:]}") from app._exception
        await pilot.resize_terminal(100, 30)
        while len(app.screen_stack) > 1:
            await pilot.press("escape")
            await pilot.pause()
        app.chat.choose_pair(CATALOG.pairs[0])
        await wait_until(pilot, lambda: app.session.info is not None and app.session.reply is None)
        app.chat.prompt.focus()
        app.chat.prompt.load_text("")
        await ask(app, pilot, "are you there")
        last = app.session.last_reply
        assert last is not None
        assert last.text or last.state == "failed", f"seed {SEED}: no answer after {done[-30:]}"
