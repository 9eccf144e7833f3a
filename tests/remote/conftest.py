"""What the tests of servers elsewhere share."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from specchat.chat.store import Store
from specchat.engine.protocol.events import Event, Failed, Finished, Loaded
from specchat.engine.protocol.options import Limits, Message, Sampling, Written
from specchat.engine.protocol.pair import ModelSource, PairSpec, Server
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.requests import Generate, Load
from specchat.remote.engine import RemoteEngine

QUESTION = (Message("user", "Tell me a story about a cat."),)
PATIENCE_S = 60.0


def spec(url: str, **server: Any) -> PairSpec:
    return PairSpec("box", "Box", ModelSource(server=Server(url, **server)), backend="remote")


class Chatting:
    """A client of a remote engine."""

    def __init__(self, engine: RemoteEngine) -> None:
        self.engine = engine

    def until(self, *kinds: type[Event]) -> list[Event]:
        """The events up to the first of these kinds."""
        found: list[Event] = []
        for event in self.engine.events(PATIENCE_S):
            found.append(event)
            if isinstance(event, kinds):
                return found
        raise AssertionError(f"nothing came after {found[-3:]}")

    def after_silence(self) -> list[Event]:
        """The events up to the end of the reply, as after more than `PATIENCE_S` in which nothing comes."""
        assert self.engine._thread is not None
        loop, found, passed = self.engine._thread._loop, list[Event](), 0.0
        now, end = loop.time, monotonic() + PATIENCE_S
        loop.time = lambda: now() + passed  # type: ignore[method-assign]
        while monotonic() < end:
            # Again and again: the next wait may not have begun.
            passed += PATIENCE_S
            loop.call_soon_threadsafe(lambda: None)
            for event in self.engine.events(0.01):
                found.append(event)
                if isinstance(event, Finished | Failed):
                    return found
        raise AssertionError(f"nothing came after {found[-3:]}")

    def load(self, url: str, **server: Any) -> PairInfo:
        event = self.tried(url, **server)
        assert isinstance(event, Loaded), event
        return event.info

    def tried(self, url: str, **server: Any) -> Event:
        self.engine.send(Load(spec(url, **server)))
        return self.until(Loaded, Failed)[-1]

    def ask(self, number: int = 1, **fields: Any) -> list[Event]:
        """The events of a reply."""
        self.send(number, **fields)
        return self.until(Finished, Failed)

    def send(self, number: int = 1, **fields: Any) -> None:
        given = {"sampling": Sampling(), "limits": Limits(48), **fields}
        self.engine.send(Generate(number, given.pop("messages", QUESTION), **given))


@pytest.fixture
def engine() -> Iterator[RemoteEngine]:
    made = RemoteEngine(patience_s=PATIENCE_S)
    made.start()
    yield made
    made.close()


@pytest.fixture
def chatting(engine: RemoteEngine) -> Chatting:
    return Chatting(engine)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "chats.db")
    yield made
    made.close()


def text_of(events: list[Event]) -> str:
    """The text of the pieces."""
    return Written.of((p.text, p.reasoning) for e in events for p in getattr(e, "pieces", ())).text
