from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specchat.engine.client import EngineClient
from specchat.engine.events import Event, Failed, Finished, Loaded
from specchat.engine.options import Message
from specchat.engine.pair import ModelSource, PairSpec
from specchat.engine.requests import Generate, Load

SCRIPTED = "tests.process.scripted:load"
PAIR = PairSpec("pair", "Pair", ModelSource(path="/nowhere"))
PATIENCE_S = 60.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


@pytest.fixture
def engine(log: Path) -> Iterator[EngineClient]:
    """A started engine with the scripted session's loader; nothing is loaded."""
    client = EngineClient(log, SCRIPTED)
    client.start()
    yield client
    client.close()


@pytest.fixture
def loaded(engine: EngineClient) -> EngineClient:
    engine.send(Load(PAIR))
    until(engine, lambda event: isinstance(event, Loaded))
    return engine


def until(engine: EngineClient, wanted: Callable[[Event], bool]) -> list[Event]:
    """Events up to and with the wanted one."""
    seen: list[Event] = []
    for event in engine.events(PATIENCE_S):
        seen.append(event)
        if wanted(event):
            return seen
    raise AssertionError(f"the wanted event never came, only {seen}")


def over(event: Event) -> bool:
    return isinstance(event, Finished | Failed)


def ask(content: str, reply: int = 1) -> Generate:
    return Generate(reply, (Message("user", content),))
