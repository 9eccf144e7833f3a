"""Commands beside the app that a test scripts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conftest import LAUNCH, loaded, make_app
from textual.pilot import Pilot

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.config.catalog import load_catalog
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from specchat.tune.beside_work import TuningPlaces
from tests.chat.conftest import answer
from tests.fake import FakeEngine

SIZE = (120, 36)


class Job:
    """Has what `BesideCommand` has, and no process."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = tuple(arguments)
        self.progress: dict[str, Any] = {}
        self.result: dict[str, Any] | None = None
        self.error = ""
        self.state = "running"
        self.paused = self.killed = False
        self.phase_s = 10.0

    @property
    def busy(self) -> bool:
        return self.state in ("running", "stopping")

    def at(self, phase: str, fraction: float, **facts: float) -> None:
        self.progress = {"phase": phase, "fraction": fraction, **facts}

    def end(self, state: str, error: str = "", **result: Any) -> None:
        self.state, self.error, self.result = state, error, result

    def pause(self, paused: bool) -> None:
        self.paused = paused

    def stop(self) -> None:
        self.state = "stopping"

    def kill(self) -> None:
        self.killed = True


@dataclass
class Jobs:
    """Makes jobs; the latest is `last`."""

    made: list[Job] = field(default_factory=list)

    def run(self, arguments: Sequence[str]) -> Any:
        self.made.append(Job(arguments))
        return self.made[-1]

    @property
    def last(self) -> Job:
        return self.made[-1]


def chats(count: int) -> Store:
    """A store with `count` answered prompts, four a chat."""
    store = Store()
    for first in range(0, count, 4):
        chat = Conversation()
        for number in range(first, min(first + 4, count)):
            turn = chat.ask(f"prompt {number}")
            store.add_turn(chat, turn, {})
            store.save_reply(chat, answer(chat, turn, "Yes."))
        store.save_chat(chat, {})
    return store


def tunes(folder: Path, jobs: Jobs, prompts: int = 20) -> Launch:
    """A launch whose tunes are `jobs`, with saved chats."""
    places = TuningPlaces(
        shelf=folder / "tuned", order=folder / "tune" / "order.json", toml=folder / "models.toml", run=jobs.run
    )
    return replace(LAUNCH, store=chats(prompts), tuning=places)


def models_toml(folder: Path) -> Path:
    """A models.toml with a pair called demo."""
    path = folder / "models.toml"
    models = f'target = {{ path = "{folder}/target" }}\ndraft = {{ path = "{folder}/draft" }}\n'
    path.write_text(f'schema = 1\ndefault = "demo"\n[[pair]]\nid = "demo"\n{models}')
    return path


@asynccontextmanager
async def chatting(
    toml: Path, jobs: Jobs, engine: FakeEngine | None = None, prompts: int = 20, size: tuple[int, int] = SIZE
) -> AsyncIterator[tuple[SpecchatApp, Pilot[None]]]:
    """The app with the pair of `toml` loaded."""
    catalog = load_catalog(toml)
    launch = replace(tunes(toml.parent, jobs, prompts), pair=catalog.find("demo"))
    app = make_app(engine or FakeEngine(), launch, catalog)
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        yield app, pilot
