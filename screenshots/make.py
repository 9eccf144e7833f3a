"""Draw the screenshots from a recorded trace, so that they show what the engine really did.

python -m screenshots.make            # SVG, and PNG where rsvg-convert and Fira Code are installed
python -m screenshots.make --record   # record screenshots/trace.jsonl anew with the default pair, then draw
"""

import argparse
import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from specchat.chat.fork import new_key
from specchat.chat.rows import ChatRow
from specchat.chat.store import Store
from specchat.config.catalog import load_catalog
from specchat.config.themes import load_themes
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Event, Failed, Finished, Loaded
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.requests import Generate, Load
from specchat.service.settings import Preferences
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from specchat.tui.screens.race import RaceScreen
from tests import trace
from tests.fake import FakeEngine

HERE = Path(__file__).parent
TRACE = HERE / "trace.jsonl"
PROMPTS = (
    "Write a Python function that counts the vowels in a text.",
    "Tell me a story about a fox and a lamp.",
)
OTHER_CHATS = (
    "Vowels, counted three ways",
    "A letter to Nina",
    "Recipes without an oven",
    "Why the sea is salt",
    "The boat and the storm",
)
SEED = 42
CELL = 12.2
"""Width of a cell in Textual's SVG."""
GLYPH = 1200 / 1950
"""Width of a Fira Code glyph at font size 1."""
PIXELS = 15
"""Width of a cell in the PNG."""


@dataclass(frozen=True)
class Shot:
    """A picture: the keys pressed after the recorded replies are on the screen."""

    name: str
    theme: str
    size: tuple[int, int] = (120, 36)
    keys: tuple[str, ...] = ()


SHOTS = (
    Shot("chat", "ink"),
    Shot("tokens", "ink", keys=("ctrl+t",)),
    Shot("settings", "dusk", keys=("ctrl+o",)),
    Shot("chats", "ink", keys=("ctrl+b",)),
    Shot("race", "dusk", keys=("f6",)),
    Shot("what-if", "ink", keys=("f10",)),
    Shot("light", "paper"),
    Shot("narrow", "contrast", size=(80, 24)),
)


def record() -> None:
    """Let the default pair answer the prompts, the last one twice more for a race, and keep its events.

    Raises:
        RuntimeError: the engine failed; the message is its own.
    """
    catalog = load_catalog(None)
    pair = catalog.find(catalog.default)
    engine = EngineClient()
    engine.start()
    try:
        engine.send(Load(pair.spec))
        kept = [event for event in _until(engine, Loaded) if isinstance(event, Loaded)]
        events: list[Event] = list(kept)
        messages: tuple[Message, ...] = ()
        asked = messages
        speculation = Speculation.of(pair.strategy, pair.lengths.get(pair.strategy))
        for number, prompt in enumerate(PROMPTS):
            messages = (*messages, Message("user", prompt))
            engine.send(Generate(number, messages, pair.sampling, Limits(300), speculation))
            answer = _until(engine, Finished)
            events += answer
            asked, messages = messages, (*messages, Message("assistant", answer[-1].text))  # type: ignore[union-attr]
        for number, lane in enumerate((Speculation(), speculation), len(PROMPTS)):
            engine.send(Generate(number, asked, pair.sampling, Limits(300), lane, cold=True))
            events += _until(engine, Finished)
    finally:
        engine.close()
    with TRACE.open("w", encoding="utf-8") as stream:
        trace.write(stream, events)


def _until(engine: EngineClient, last: type[Loaded] | type[Finished]) -> list[Event]:
    events: list[Event] = []
    for event in engine.events(120):
        if isinstance(event, Failed):
            raise RuntimeError(event.message)
        events.append(event)
        if isinstance(event, last):
            return events
    raise RuntimeError("the engine said nothing for two minutes")


def replay() -> FakeEngine:
    """An engine that plays the recorded replies."""
    events = list(trace.read(TRACE))
    info = next(event.info for event in events if isinstance(event, Loaded))
    return FakeEngine(trace.replies(events), info=info)


def _store() -> Store:
    """Some chats of the last days."""
    store = Store()
    for number, title in enumerate(OTHER_CHATS):
        at = time.time() - number * 40_000
        store.insert(ChatRow(new_key(), title, title, created=at, updated=at, pinned=number == 2), [], {})[1].wait(5)
    return store


async def draw(shot: Shot, folder: Path) -> None:
    """Write one picture to `folder`."""
    catalog = load_catalog(None)
    themes, _ = load_themes([HERE.parent / "themes"])
    launch = Launch(
        catalog.find(catalog.default),
        theme=shot.theme,
        themes=themes,
        store=_store(),
        preferences=Preferences(seed=SEED),
    )
    app = SpecchatApp(replay(), catalog, launch)
    async with app.run_test(size=shot.size) as pilot:
        await _until_true(pilot, lambda: app.session.loaded.info is not None)
        for prompt in PROMPTS:
            app.chat.prompt.insert(prompt)
            await pilot.press("enter")
            await _until_true(pilot, lambda: bool(app.session.conversation.turns) and app.session.reply is None)
        for key in shot.keys:
            await pilot.press(key)
        if isinstance(race := app.screen, RaceScreen):  # on its way, as it is shown again
            await _until_true(pilot, lambda: race.view.race.verdict is not None)
            race.view.advance(0)
            race.view.advance(5)
        await pilot.pause(0.5)
        svg = app.export_screenshot(title="specchat")
    path = folder / f"{shot.name}.svg"
    path.write_text(svg, encoding="utf-8")
    _png(path)


async def _until_true(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    for _ in range(500):
        await pilot.pause(0.02)
        if true():
            return
    raise RuntimeError("the recorded replies did not come to an end")


def _png(path: Path) -> None:
    """The picture as PNG. rsvg-convert knows no textLength and rounds widths: glyphs are made to fit the cells."""
    if shutil.which("rsvg-convert") is None:
        return
    svg = path.read_text(encoding="utf-8").replace("<svg ", '<svg xml:space="preserve" ', 1)
    svg = svg.replace("font-size: 20px", f"font-size: {CELL / GLYPH:.4f}px")
    command = ["rsvg-convert", "--zoom", f"{PIXELS / CELL:.6f}", "-o", str(path.with_suffix(".png"))]
    subprocess.run(command, input=svg.encode(), check=True)


async def _all(folder: Path) -> None:
    for shot in SHOTS:
        await draw(shot, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="record the trace anew first")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the pictures go")
    arguments = parser.parse_args()
    if arguments.record:
        record()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_all(arguments.folder))


if __name__ == "__main__":
    main()
