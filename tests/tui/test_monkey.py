"""Random use of everything there is: the app never crashes and still answers afterwards.

How much is done is counted, and the engine's clock goes on with it: a slow machine does the same.

Swarm testing (Groce et al. 2012): for a while only some of the things are done and only a few keys pressed, so that
one place of the app is used long enough to get deep into it.
"""

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CATALOG, LAUNCH, ask, make_app, wait_until
from hostile import anything
from textual import events
from textual.pilot import Pilot

from specchat.chat.store import Store
from specchat.clean import clean
from specchat.engine.protocol.options import Written
from specchat.tui.actions.models import use_pair
from specchat.tui.actions.table import ACTIONS
from specchat.tui.app import SpecchatApp
from tests.fake import FakeEngine
from tests.service.made import Clock

KEYS = [
    "enter", "escape", "up", "down", "left", "right", "pageup", "pagedown", "tab", "shift+tab", "space", "backspace",
    "delete", "home", "end", "ctrl+a", "ctrl+k", "ctrl+z", "ctrl+c", "ctrl+v", "ctrl+u", "ctrl+d", "ctrl+f", "a", "x",
    "1", "0", ".", "[", "`", "-", "slash", "at", "y", "n", "shift+up", "ctrl+shift+left", "f11", "漢", "é", "]",
]  # fmt: skip
COMMANDS = sorted(action.slash for action in ACTIONS if action.slash)
ALL_KEYS = sorted({*KEYS, *(key for action in ACTIONS for key in action.keys)})
ARGUMENTS = ("", "", "plain", "lookup", "demo", "a name", "chat.md", "chat.json", "fox", "3", "[/]", "/nowhere/x.md")
REPLIES = (
    "Once there was a fox.\n\n```python\nprint(1)\n```\n\n- a\n- b\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\n" * 10,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 漢字 " * 60,
    "x" * 3000,
    "\n".join(f"line {n} with some words in it, and more of them than fit in one row of a window" for n in range(80)),
    Written.of([("let me see\n", True), ("\n\nSee [a](https://x.y), $x_1$.\n\n$$\nx\n$$\n" * 3, False)]),
)
THINGS = int(os.environ.get("SPECCHAT_MONKEY_THINGS", "300"))
SEED = int(os.environ.get("SPECCHAT_MONKEY_SEED", "1"))
MOST = 5000
"""Things that are done with one seed."""
PAUSES_S = (0.0, 0.005, 0.05, 0.5)
"""Between two things, for the engine."""


class Monkey:
    """One random thing at a time; `done` says what was done."""

    def __init__(
        self, app: SpecchatApp, engine: FakeEngine, clock: Clock, pilot: Pilot[None], chance: random.Random
    ) -> None:
        self._app = app
        self._engine = engine
        self._clock = clock
        self._pilot = pilot
        self._chance = chance
        self._left = 0
        self._acts: dict[Callable[[], Awaitable[None]], int] = {}
        self._keys: list[str] = []
        self.done: list[str] = []

    async def act(self) -> None:
        if not self._left:
            await self._change_mood()
        self._left -= 1
        self._clock.now += self._chance.choice(PAUSES_S)
        await self._chance.choices(list(self._acts), list(self._acts.values()))[0]()

    async def _change_mood(self) -> None:
        """Do other things for a while, in some place, while the engine writes at another pace."""
        acts = {
            self._key: 65, self._do: 6, self._slash: 4, self._ask: 4, self._click: 9, self._drag: 2, self._wheel: 2,
            self._paste: 1, self._resize: 3, self._trouble: 2, self._switch: 1, self._wait: 1,
        }  # fmt: skip
        self._left = self._chance.randint(5, 60)
        self._acts = {act: weight for act, weight in acts.items() if act == self._key or self._chance.random() < 0.4}
        self._keys = self._chance.sample(ALL_KEYS, self._chance.choice((4, 8, len(ALL_KEYS))))
        self._engine.tokens_per_second = self._chance.choice((10, 40, 300, 3000))
        if place := self._chance.choice(("", "read", "chats", "new-chat", "tokens-here")):
            self.done.append(f"do {place}")
            await self._app.chat.do(place)

    async def _press(self, *keys: str) -> None:
        self.done += keys
        await self._pilot.press(*keys)

    async def _key(self) -> None:
        await self._press(self._chance.choice(self._keys))

    async def _do(self) -> None:
        """An action, whatever is on the screen: this is how the palette runs it."""
        action = self._chance.choice([action for action in ACTIONS if not action.fixed])
        self.done.append(f"do {action.id}")
        await self._app.chat.do(action.id)

    async def _slash(self) -> None:
        command = f"/{self._chance.choice(COMMANDS)} {self._chance.choice(ARGUMENTS)}".rstrip()
        self.done.append(command)
        self._app.chat.prompt.load_text(command)
        self._app.chat.prompt.move_cursor(self._app.chat.prompt.document.end)
        await self._press(*["enter"] * self._chance.randint(1, 2))

    async def _ask(self) -> None:
        self.done.append("ask")
        self._app.chat.prompt.insert(clean(anything(self._chance)))
        await self._press("enter")

    def _place(self) -> tuple[int, int]:
        size = self._app.size
        return self._chance.randrange(max(size.width, 1)), self._chance.randrange(max(size.height, 1))

    async def _click(self) -> None:
        place, times = self._place(), self._chance.choice((1, 1, 2, 3))
        self.done.append(f"click {place} {times}")
        await self._pilot.click(offset=place, times=times)

    async def _drag(self) -> None:
        start, end = self._place(), self._place()
        self.done.append(f"drag {start} {end}")
        await self._pilot.mouse_down(offset=start)
        await self._pilot.hover(offset=end)
        await self._pilot.mouse_up(offset=end)

    async def _wheel(self) -> None:
        x, y = self._place()
        kind = self._chance.choice((events.MouseScrollUp, events.MouseScrollDown))
        self.done.append(f"{kind.__name__} {x} {y}")
        self._app.screen._forward_event(kind(None, x, y, 0, 0, 0, False, False, False, x, y))
        await self._pilot.pause()

    async def _paste(self) -> None:
        self.done.append("paste")
        texts = [reply for reply in REPLIES if isinstance(reply, str)]
        text = self._chance.choice((*texts, anything(self._chance, 60))) * self._chance.randint(1, 30)
        (self._app.focused or self._app.chat.prompt).post_message(events.Paste(text))

    async def _resize(self) -> None:
        width, height = self._chance.choice(((100, 30), (self._chance.randint(3, 180), self._chance.randint(2, 60))))
        self.done.append(f"resize {width}x{height}")
        await self._pilot.resize_terminal(width, height)

    async def _trouble(self) -> None:
        trouble = self._chance.choice(("die", "fail", "fail load"))
        self.done.append(trouble)
        if trouble == "die":
            self._engine.die()
        elif trouble == "fail":
            self._engine.fail_reply("memory", anything(self._chance))
        else:
            self._engine.fail_load("model", anything(self._chance))

    async def _switch(self) -> None:
        self.done.append("switch")
        use_pair(self._app.chat, self._chance.choice(CATALOG.pairs))

    async def _wait(self) -> None:
        self.done.append("wait")
        await self._pilot.pause(self._chance.choice((0.1, 0.5)))


@pytest.mark.parametrize("seed", range(SEED, SEED + max(THINGS // MOST, 1)))
async def test_monkey(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int) -> None:
    monkeypatch.chdir(tmp_path)  # where chats may be saved
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setattr(SpecchatApp, "exit", lambda *_, **__: None)
    monkeypatch.setattr(SpecchatApp, "open_url", lambda *_, **__: None)
    chance = random.Random(seed)
    clock = Clock()
    engine = FakeEngine(REPLIES, tokens_per_second=300, clock=clock)
    store = Store(tmp_path / "chats.db")
    app = make_app(engine, replace(LAUNCH, store=store, history=tmp_path / "history"))
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        monkey = Monkey(app, engine, clock, pilot, chance)
        try:
            while len(monkey.done) < min(THINGS, MOST):
                await monkey.act()
                assert app._exception is None
                assert app.is_running
            await rest(app, engine, clock, pilot)
        except BaseException as error:
            error.add_note(f"SPECCHAT_MONKEY_SEED={seed} crashed after {monkey.done[-30:]}")
            raise
    print(f"seed {seed}: {len(monkey.done)} things done, {len(store.chats())} chats")
    assert store.close()


async def rest(app: SpecchatApp, engine: FakeEngine, clock: Clock, pilot: Pilot[None]) -> None:
    """Close what is open and ask once more."""
    await pilot.resize_terminal(100, 30)
    while len(app.screen_stack) > 1:
        await pilot.press("escape")
        await pilot.pause()
    engine.tokens_per_second = None
    clock.now += 1e6
    engine._failures.clear()
    engine._load_failures.clear()
    use_pair(app.chat, CATALOG.pairs[0])
    await wait_until(pilot, lambda: app.session.loaded.info is not None and app.session.reply is None)
    await pilot.press("alt+n", "escape")
    app.chat.prompt.focus()
    app.chat.prompt.load_text("")
    await ask(app, pilot, "are you there")
    last = app.session.last_reply
    assert last is not None
    assert last.text or last.state == "failed"
