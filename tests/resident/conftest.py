from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from specchat.engine.protocol.port import EnginePort
from specchat.resident.control import engines
from specchat.resident.shared import SharedEngine, open_engine
from tests.process.conftest import SCRIPTED, gone, have_patience

Connect = Callable[[], EnginePort]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets, whose paths are to be short. What was started is over at the end."""
    have_patience(monkeypatch)
    with TemporaryDirectory(prefix="sc") as folder:
        yield Path(folder)
        pids = [found["pid"] for found in engines(Path(folder), "stop")]
        for pid in pids:
            gone(pid)


@pytest.fixture
def connect(runtime: Path, tmp_path: Path) -> Iterator[Connect]:
    """Connects clients to one resident engine, which ends with the last of them."""
    opened: list[EnginePort] = []

    def another() -> EnginePort:
        opened.append(open_engine(runtime, tmp_path / "engine.log", "test", 0, loader=SCRIPTED))
        assert isinstance(opened[-1], SharedEngine)
        opened[-1].start()
        return opened[-1]

    yield another
    for one in opened:
        one.close()
