"""Runs the app and, inside it, a measurement that a JSON plan describes; the plan's `report` is written at the end.

    python -m measure.inside_app second '{"report": "r", "prompts": ["a", "b"], "seed": 1, "rest": 0.3, "pairs": 8}'
    python -m measure.inside_app share '{"report": "r", "pairs": 20, "strategy": "plain"}'

`second` answers two prompts, each in a chat of its own, and then measures what drafting was worth in the second.
`share` answers one prompt repeatedly, shown on the screen or only read, in turns.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from measure.terminal import processor_s
from specchat.chat.lately import speedup_lately
from specchat.chat.turn import Reply
from specchat.config.catalog import load_catalog
from specchat.config.paths import shipped
from specchat.config.themes import load_themes
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Event, Finished, Started, Step
from specchat.engine.protocol.options import Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.service.settings import Preferences
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch, UserConfig

PROMPT = "Tell me a story about a fox, a lamp and a river."
GREEDY = Sampling(temperature=0.0)
"""The same reply each time."""
REST_S = 0.5
"""Seconds before each reply of `share`."""


class InsideApp:
    """The app with the default pair, and replies in it."""

    def __init__(self, preferences: Preferences) -> None:
        catalog = load_catalog(None)
        themes, _ = load_themes([shipped("themes")])
        self.engine = EngineClient()
        self.app = SpecchatApp(
            self.engine,
            catalog,
            Launch(catalog.find(catalog.default), config=UserConfig(themes=themes), preferences=preferences),
        )

    def run(self, measured: Callable[[], Awaitable[Any]], report: str) -> None:
        """Run the app until `measured` has ended, whose outcome goes to `report` as JSON."""

        async def work() -> None:
            while self.app.session.loaded.info is None:
                await asyncio.sleep(0.1)
            Path(report).write_text(json.dumps(await measured()))
            self.app.exit()

        self.app.call_later(lambda: self.app.run_worker(work()))
        self.app.run()
        self.engine.close()

    async def drawn(self, refusal: str) -> Reply:
        """The reply that was just asked for, once it has ended."""
        session = self.app.session
        reply = session.reply
        assert reply is not None, refusal
        self.app.chat.redraw()
        while session.reply is not None:
            await asyncio.sleep(0.05)
        return reply

    async def read(self, prompt: str, speculation: Speculation, cold: bool = False) -> Reply:
        """A reply that is not drawn."""
        session = self.app.session
        settings, id = session.settings, session.listeners.new_id()
        sampling = settings.sampling_with(None)
        request = Generate(id, (Message("user", prompt),), sampling, settings.limits, speculation, cold=cold)
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


def second(plan: dict[str, Any]) -> None:
    """Two prompts after a start, and the truth about the second: pairs of milliseconds a token, drafted and plain."""
    inside = InsideApp(Preferences(seed=plan["seed"]))
    session = inside.app.session

    async def shown(prompt: str) -> dict[str, Any]:
        """The multiplier that the app shows of a reply with its interval, None without, and milliseconds a token."""
        await inside.app.chat.do("new-chat")
        await asyncio.sleep(plan["rest"])
        reply = await inside.drawn(session.send(prompt))
        found = speedup_lately(reply)
        times = None if found is None else [found.times, found.low, found.high]
        return {"times": times, "ran_ms": reply.tally.ran_ms / reply.tally.tokens, "tokens": reply.tally.tokens}

    async def token_ms(speculation: Speculation) -> float:
        await asyncio.sleep(plan["rest"])
        tally = (await inside.read(plan["prompts"][-1], speculation, cold=True)).tally
        return tally.ran_ms / tally.tokens

    async def measured() -> dict[str, Any]:
        replies = [await shown(prompt) for prompt in plan["prompts"]]
        pairs = []
        for _ in range(plan["pairs"]):
            plain = await token_ms(Speculation())
            pairs.append([await token_ms(session.settings.speculation), plain])
        return {"shown": replies, "pairs": pairs}

    inside.run(measured, plan["report"])


def share(plan: dict[str, Any]) -> None:
    """Replies drawn and only read, in turns: speed, and processor time of the engine and of the app."""
    inside = InsideApp(Preferences(strategy=plan["strategy"], sampling=GREEDY))
    session = inside.app.session

    def drawn() -> Awaitable[Reply]:
        return inside.drawn(session.regenerate() if session.conversation.last else session.send(PROMPT))

    def read() -> Awaitable[Reply]:
        return inside.read(PROMPT, session.settings.speculation)

    async def timed(answer: Callable[[], Awaitable[Reply]]) -> dict[str, float]:
        await asyncio.sleep(REST_S)
        pid = inside.engine.pid
        assert pid is not None
        engine, app, begun = processor_s(pid), process_time(), perf_counter()
        reply = await answer()
        assert reply.end.stats is not None, reply.end.error
        return {
            "speed": reply.end.stats.tokens_per_second,
            "tokens": reply.end.stats.completion_tokens,
            "cpu": processor_s(pid) - engine,
            "share": (process_time() - app) / (perf_counter() - begun),
        }

    async def measured() -> dict[str, Any]:
        await asyncio.sleep(2.0)  # the imports behind the first frame
        found: dict[str, list[dict[str, float]]] = {"drawn": [], "read": []}
        for number in range(-1, plan["pairs"]):
            for kind in sorted(found, reverse=number % 2 == 0):
                figures = await timed(drawn if kind == "drawn" else read)
                if number >= 0:
                    found[kind].append(figures)
        return found

    inside.run(measured, plan["report"])


if __name__ == "__main__":
    {"second": second, "share": share}[sys.argv[1]](json.loads(sys.argv[2]))
