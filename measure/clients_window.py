"""One window of `measure.clients`: the app without a terminal, on the shared engine and the shared chats.

    python -m measure.clients_window NAME SECONDS SEED EXPECTED

EXPECTED is a JSON file of [prompt, seed, reply]. Prints JSON: the prompts that were sent, and what was wrong.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

from textual.pilot import Pilot

from specchat.cli.app import _launch
from specchat.cli.prepare import engine_for, prepare
from specchat.cli.wishes import Wishes
from specchat.tui.app import SpecchatApp

TOKENS = 48
PATIENCE_S = 60.0
LOOK_S = 0.02


class Window:
    """Sends prompts in new and old chats, and compares first replies with the expected ones."""

    def __init__(self, app: SpecchatApp, name: str, expected: list[tuple[str, int, str]], chance: Random) -> None:
        self._app = app
        self._name = name
        self._expected = expected
        self._chance = chance
        self.sent: list[str] = []
        self.wrong: list[str] = []
        self.replies = 0

    async def use(self, pilot: Pilot[None], ends: float) -> None:
        """Chat until `ends`."""
        await self._until(lambda: self._app.session.loaded.info is not None, "loaded")
        while time.monotonic() < ends and not self.wrong:
            prompt, seed, text = self._chance.choice(self._expected)
            await self._app.chat.do("new-chat")
            await self._send(pilot, prompt, seed)
            reply = self._app.session.last_reply
            self.replies += 1
            if reply is None or reply.text != text:
                self.wrong.append(
                    f"{self._name}: {prompt!r} {seed}: {reply and (reply.state, reply.end.error, reply.text)}"
                )
            if self._chance.random() < 0.5:
                own = f"{self._name} adds {len(self.sent)}: {self._chance.choice(self._expected)[0]}"
                self.sent.append(own)
                await self._send(pilot, own, seed, stopped=self._chance.random() < 0.3)
            entries = self._app.session.chat.saving.store.chats()
            if entries and self._chance.random() < 0.5:
                self._app.chat.chats.open(self._chance.choice(entries).key)
                await pilot.pause()

    async def _send(self, pilot: Pilot[None], prompt: str, seed: int, *, stopped: bool = False) -> None:
        session = self._app.session
        session.change(replace(session.settings, seed=seed))
        turns = len(session.conversation.turns)
        self._app.chat.prompt.text = prompt
        await pilot.press("enter")
        await self._until(lambda: len(session.conversation.turns) > turns, f"sent {prompt!r}")
        if stopped:
            await pilot.press("escape")
        await self._until(lambda: session.reply is None, f"answered {prompt!r}")

    async def _until(self, true: Callable[[], object], what: str) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > ends:
                raise TimeoutError(f"{self._name} was not {what}: {self._app.chat.notice.text}")
            await asyncio.sleep(LOOK_S)


async def run(name: str, seconds: float, seed: str, expected: list[tuple[str, int, str]]) -> Window:
    """A window for so many `seconds`."""
    wishes = Wishes(max_tokens=TOKENS)
    prepared = prepare(wishes)
    launch = _launch(prepared, None, True, wishes)
    with closing(engine_for(prepared, "app")) as engine, closing(launch.store):
        app = SpecchatApp(engine, prepared.catalog, launch)
        window = Window(app, name, expected, Random(seed))
        async with app.run_test(size=(80, 24)) as pilot:
            try:
                await window.use(pilot, time.monotonic() + seconds)
            except TimeoutError as error:
                window.wrong.append(str(error))
    return window


def main() -> None:
    """Run one window and print what it found."""
    name, seconds, seed, path = sys.argv[1:]
    expected = json.loads(Path(path).read_text(encoding="utf-8"))
    window = asyncio.run(run(name, float(seconds), seed, expected))
    print(json.dumps({"replies": window.replies, "sent": window.sent, "wrong": window.wrong}))


if __name__ == "__main__":
    main()
