"""One start of the app for `measure.second`: two replies, each in a chat of its own, and then what they were worth.

python -m measure.second_app '{"report": "report.json", "prompts": ["...", "..."], "seed": 1, "rest": 0.3, "pairs": 8}'
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from specchat.chat.lately import speedup_lately
from specchat.chat.turn import Reply
from specchat.config.catalog import load_catalog
from specchat.config.paths import shipped
from specchat.config.themes import load_themes
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Event, Finished, Started, Step
from specchat.engine.protocol.options import Message, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.service.settings import Preferences
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch


class Start:
    """Two prompts after a start, and the truth about the second."""

    def __init__(self, app: SpecchatApp, plan: dict[str, Any]) -> None:
        self._app = app
        self._plan = plan

    async def run(self) -> None:
        session = self._app.session
        while session.loaded.info is None:
            await asyncio.sleep(0.1)
        shown = [await self._shown(prompt) for prompt in self._plan["prompts"]]
        pairs = []
        for _ in range(self._plan["pairs"]):
            plain = await self._read(self._plan["prompts"][-1], Speculation())
            own = await self._read(self._plan["prompts"][-1], session.settings.speculation)
            pairs.append([own.tally.ran_ms / own.tally.tokens, plain.tally.ran_ms / plain.tally.tokens])
        Path(self._plan["report"]).write_text(json.dumps({"shown": shown, "pairs": pairs}))
        self._app.exit()

    async def _shown(self, prompt: str) -> dict[str, Any]:
        """The multiplier that the app shows of a reply with its interval, None without, and milliseconds a token."""
        session = self._app.session
        await self._app.chat.do("new-chat")
        await asyncio.sleep(self._plan["rest"])
        refusal = session.send(prompt)
        reply = session.reply
        assert reply is not None, refusal
        while session.reply is not None:
            await asyncio.sleep(0.05)
        found = speedup_lately(reply)
        times = None if found is None else [found.times, found.low, found.high]
        return {"times": times, "ran_ms": reply.tally.ran_ms / reply.tally.tokens, "tokens": reply.tally.tokens}

    async def _read(self, prompt: str, speculation: Speculation) -> Reply:
        """A reply from empty caches that is not drawn."""
        await asyncio.sleep(self._plan["rest"])
        session = self._app.session
        settings, id = session.settings, session.listeners.new_id()
        request = Generate(
            id, (Message("user", prompt),), settings.sampling_with(None), settings.limits, speculation, cold=True
        )
        reply = Reply(id, "", request.sampling, speculation)
        ended: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def listen(event: Event) -> None:
            match event:
                case Started():
                    reply.started(event)
                case Step():
                    reply.step(event)
                case Finished():
                    reply.finished(event)
                    ended.set_result(reply)

        session.request(request, listen)
        return await ended


def main(arguments: str) -> None:
    plan = json.loads(arguments)
    engine = EngineClient()
    catalog = load_catalog(None)
    themes, _ = load_themes([shipped("themes")])
    launch = Launch(catalog.find("demo"), themes=themes, preferences=Preferences(seed=plan["seed"]))
    app = SpecchatApp(engine, catalog, launch)
    start = Start(app, plan)
    app.call_later(lambda: app.run_worker(start.run()))
    app.run()
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
