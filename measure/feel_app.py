"""Runs the app over a scripted engine, and measures stalls of its event loop and its idle cost from inside.

    python -m measure.feel_app '{"report": "report.json", ...}'

The fields are those of `Plan`. The report is written after the app was idle for `idle` seconds behind a reply.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter, process_time, thread_time, time

from specchat.chat.rows import ChatRow, MessageRow
from specchat.chat.store import Store
from specchat.config.catalog import load_catalog
from specchat.config.paths import shipped
from specchat.config.themes import load_themes
from specchat.engine.protocol.events import Finished, Started
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.stats import Stats
from specchat.service.settings import Preferences
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch, UserConfig
from specchat.tui.widgets.sidebar import Sidebar
from tests.fake import INFO, FakeEngine
from tests.fake_steps import count, stats, steps

BEAT_S = 0.01
SETTLED_S = 3.0
"""Seconds that still count as the end of the reply."""


@dataclass(frozen=True)
class Plan:
    report: str
    tokens: int = 8000
    speed: float = 300.0
    """Tokens per second."""
    strategy: str = "draft"
    messages: int = 0
    """Messages of the chat opened at the start."""
    idle: float = 10.0
    """Seconds."""


@dataclass
class Phase:
    """Delay and processor time between two beats of the event loop, in milliseconds."""

    stalls: list[float] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)
    cpu: float = 0.0
    """Seconds of processor time, all threads."""
    seconds: float = 0.0


def long_reply(tokens: int) -> str:
    """Prose of about `tokens` that ends in a 300-line fence and a list of 60 items."""
    fence = "".join(f"    light = lamp({i}, 'fox')  # {i}\n" for i in range(300))
    end = f"\n```python\ndef river():\n{fence}```\n\n" + "".join(
        f"- item {i}: a **fox** with a `lamp` by the river\n" for i in range(60)
    )
    prose = "Once there was a small fox who kept a lamp in her den, and every night she lit it by the river. "
    paragraphs, room = "", tokens - count(end)
    each = count(prose)
    for number in range(max(room // each, 1)):
        paragraphs += prose + ("\n\n" if number % 5 == 4 else "")
    return paragraphs + "\n" + end


def events(text: str, strategy: str) -> Sequence[Started | Finished]:
    """The recorded reply."""
    made = steps(text, strategy=strategy, length=5)
    figures: Stats = stats(made, 20, INFO.plain.tokens_per_second)
    began = Started(0, 20, 0, 1, Speculation.of(strategy))
    return [began, *made, Finished(0, "stop", text, (), figures)]  # type: ignore[list-item]


def fill(store: Store, messages: int) -> str:
    """Store a chat of `messages` messages, and return its key."""
    words = "A fox, a lamp and a river were there before anybody asked. " * 4
    listed: list[MessageRow] = []
    for number in range(messages):
        role, parent = ("assistant" if number % 2 else "user"), (listed[-1].key if listed else None)
        text = words if number % 2 else f"What about fox number {number}?"
        listed.append(MessageRow(f"m{number}", parent, role, text, time(), "finished" if number % 2 else "sent"))  # type: ignore[arg-type]
    key, saved = store.insert(ChatRow("long", title="long", view={"leaf": listed[-1].key}), listed, {})
    saved.wait()
    return key


class Watch:
    """Measures beats in the app's event loop."""

    def __init__(self, app: SpecchatApp, plan: Plan) -> None:
        self._app = app
        self._plan = plan
        self.phases = {name: Phase() for name in ("start", "stream", "end", "idle")}

    async def run(self, chat: str) -> None:
        app, plan = self._app, self._plan
        while app.session.loaded.info is None:
            await asyncio.sleep(BEAT_S)
        if chat:
            await asyncio.sleep(1.5)  # until the imports behind the first frame are done
            app.chat.post_message(Sidebar.Chosen(chat, None))
        await self._beat("start", lambda: app.session.reply is not None and app.session.reply.state == "writing")
        await self._beat("stream", lambda: app.session.reply is None)
        await self._for("end", SETTLED_S)
        await self._for("idle", plan.idle)
        Path(plan.report).write_text(json.dumps({name: asdict(phase) for name, phase in self.phases.items()}))
        app.exit()

    async def _for(self, name: str, seconds: float) -> None:
        if name == "idle":  # beats would cost more than the app
            phase, cpu, begun = self.phases[name], process_time(), perf_counter()
            await asyncio.sleep(seconds)
            phase.cpu, phase.seconds = process_time() - cpu, perf_counter() - begun
            return
        end = perf_counter() + seconds
        await self._beat(name, lambda: perf_counter() >= end)

    async def _beat(self, name: str, over: "object") -> None:
        assert callable(over)
        phase, cpu, begun = self.phases[name], process_time(), perf_counter()
        while not over():
            clock, worked = perf_counter(), thread_time()
            await asyncio.sleep(BEAT_S)
            phase.stalls.append(1e3 * (perf_counter() - clock - BEAT_S))
            phase.worked.append(1e3 * (thread_time() - worked))
        phase.cpu, phase.seconds = process_time() - cpu, perf_counter() - begun


def main(arguments: str) -> None:
    plan = Plan(**json.loads(arguments))
    engine = FakeEngine((events(long_reply(plan.tokens), plan.strategy),), tokens_per_second=plan.speed)
    catalog = load_catalog(None)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "chats.db")
        key = fill(store, plan.messages) if plan.messages else ""
        themes, _ = load_themes([shipped("themes")])
        launch = Launch(
            catalog.find(catalog.default),
            config=UserConfig(themes=themes),
            store=store,
            preferences=Preferences(limits=Limits(context="drop-oldest")),
        )
        app = SpecchatApp(engine, catalog, launch)
        watch = Watch(app, plan)
        app.call_later(lambda: app.run_worker(watch.run(key)))
        app.run()
        store.close()


if __name__ == "__main__":
    main(sys.argv[1])
