import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Event, Failed, Finished, Loaded
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Generate, Load
from specchat.resident import control, shared
from specchat.resident.control import engines
from specchat.resident.shared import SharedEngine, open_engine

SCRIPTED = "tests.process.scripted:load"
PAIR = PairSpec("pair", "Pair", ModelSource(path="/nowhere"))
PATIENCE_S = 240.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


def have_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a resident engine have as long as it needs to start and to answer: a user gets another one after seconds."""
    monkeypatch.setattr(shared, "JOIN_S", PATIENCE_S)
    monkeypatch.setattr(shared, "ANSWER_S", PATIENCE_S)
    monkeypatch.setattr(control, "ANSWER_S", PATIENCE_S)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets, whose paths are to be short."""
    have_patience(monkeypatch)
    with TemporaryDirectory(prefix="sc") as folder:
        yield Path(folder)


@pytest.fixture(params=["alone", "shared"])
def engine(request: pytest.FixtureRequest, log: Path, runtime: Path) -> Iterator[EnginePort]:
    """A started engine with the scripted session's loader; nothing is loaded."""
    alone = request.param == "alone"
    client = EngineClient(log, SCRIPTED) if alone else open_engine(runtime, log, "test", 0, loader=SCRIPTED)
    assert isinstance(client, EngineClient) == alone
    client.start()
    yield client
    client.close()


@pytest.fixture
def loaded(engine: EnginePort) -> EnginePort:
    engine.send(Load(PAIR))
    until(engine, lambda event: isinstance(event, Loaded))
    return engine


def until(engine: EnginePort, wanted: Callable[[Event], bool]) -> list[Event]:
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


def pid_of(engine: EnginePort) -> int:
    """The process of the worker."""
    if isinstance(engine, EngineClient):
        assert engine.pid is not None
        return engine.pid
    assert isinstance(engine, SharedEngine)
    (resident,) = engines(engine.endpoint.socket.parent, "status")
    return int(resident["workers"][0]["pid"])


def gone(pid: int, seconds: float = PATIENCE_S) -> None:
    """Wait for the end of a process, which is no child of this one if `seconds` are more than 0."""
    until = time.monotonic() + seconds
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.01)
