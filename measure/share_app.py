"""Runs the app over an engine that answers one prompt repeatedly, shown on the screen or only read, in turns.

python -m measure.share_app '{"report": "report.json", "pairs": 20, "strategy": "plain"}'
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from specchat.config.catalog import load_catalog
from specchat.config.paths import shipped
from specchat.config.themes import load_themes
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Event, Finished
from specchat.engine.protocol.options import Message, Sampling
from specchat.engine.protocol.requests import Generate
from specchat.engine.protocol.stats import Stats
from specchat.service.settings import Preferences
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch

PROMPT = "Tell me a story about a fox, a lamp and a river."
GREEDY = Sampling(temperature=0.0)
"""The same reply each time."""
REST_S = 0.5


def engine_seconds(pid: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Turns:
    """The turns, inside the app."""

    def __init__(self, app: SpecchatApp, engine: EngineClient, plan: dict[str, Any]) -> None:
        self._app = app
        self._engine = engine
        self._plan = plan

    async def run(self) -> None:
        session = self._app.session
        while session.loaded.info is None:
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)  # the imports behind the first frame
        found: dict[str, list[dict[str, float]]] = {"drawn": [], "read": []}
        for number in range(-1, self._plan["pairs"]):
            for kind in sorted(found, reverse=number % 2 == 0):
                figures = await self._timed(self._drawn if kind == "drawn" else self._read)
                if number >= 0:
                    found[kind].append(figures)
        Path(self._plan["report"]).write_text(json.dumps(found))
        self._app.exit()

    async def _timed(self, answer: Callable[[], Awaitable[Stats]]) -> dict[str, float]:
        await asyncio.sleep(REST_S)
        pid = self._engine.pid
        assert pid is not None
        engine, own, begun = engine_seconds(pid), process_time(), perf_counter()
        stats = await answer()
        return {
            "speed": stats.tokens_per_second,
            "tokens": stats.completion_tokens,
            "cpu": engine_seconds(pid) - engine,
            "share": (process_time() - own) / (perf_counter() - begun),
        }

    async def _drawn(self) -> Stats:
        session = self._app.session
        refusal = session.regenerate() if session.conversation.last else session.send(PROMPT)
        reply = session.reply
        assert reply is not None, refusal
        self._app.chat.redraw()
        while session.reply is not None:
            await asyncio.sleep(0.05)
        assert reply.stats is not None, reply.error
        return reply.stats

    async def _read(self) -> Stats:
        session = self._app.session
        settings, id = session.settings, session.listeners.new_id()
        messages = (Message("user", PROMPT),)
        request = Generate(id, messages, settings.sampling_with(None), settings.limits, settings.speculation)
        ended: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()

        def listen(event: Event) -> None:
            if isinstance(event, Finished):
                ended.set_result(event.stats)

        session.request(request, listen)
        return await ended


def main(arguments: str) -> None:
    plan = json.loads(arguments)
    engine = EngineClient()
    catalog = load_catalog(None)
    themes, _ = load_themes([shipped("themes")])
    launch = Launch(
        catalog.find(catalog.default),
        themes=themes,
        preferences=Preferences(strategy=plan["strategy"], sampling=GREEDY),
    )
    app = SpecchatApp(engine, catalog, launch)
    turns = Turns(app, engine, plan)
    app.call_later(lambda: app.run_worker(turns.run()))
    app.run()
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
