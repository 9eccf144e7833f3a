"""The worker by itself, spoken to over its standard streams."""

import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from threading import Timer
from time import monotonic

import pytest

from specchat.engine.process import wire
from specchat.engine.process import worker as process_worker
from specchat.engine.process.client import EngineClient
from specchat.engine.process.worker import Worker
from specchat.engine.protocol.events import Counted, Failed, Finished, Loaded, Loading, Started
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.requests import Count, Forget, ForgetRead, Generate, Load, Remember, Shutdown
from tests.process.conftest import PAIR, PATIENCE_S, SCRIPTED, ask, over, until

COMMAND = [sys.executable, "-c", f"from specchat.engine.process.worker import main; main({SCRIPTED!r}, 'its log')"]
ROOT = Path(__file__).parents[2]


def test_shutdown_ends_it_in_the_middle_of_a_step() -> None:
    with subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        wire.write(worker.stdin, Load(PAIR))
        wire.write(worker.stdin, Generate(1, (Message("user", "stuck"),)))
        events = wire.read(worker.stdout)
        assert next(events) == Loading("starting the engine")
        assert any(isinstance(event, Started) for event in events)
        wire.write(worker.stdin, Shutdown())
        assert worker.wait(PATIENCE_S) == 0


def test_it_ends_when_nobody_reads_its_events() -> None:
    with subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        next(wire.read(worker.stdout))
        worker.stdout.close()
        wire.write(worker.stdin, Load(PAIR))
        assert worker.wait(PATIENCE_S) == 0


def recalled(engine: EngineClient) -> str:
    engine.send(ask("recall"))
    last = until(engine, over)[-1]
    assert isinstance(last, Finished)
    return last.text


def is_recalled(engine: EngineClient, words: str) -> bool:
    """Whether what is known comes to begin so: it is taken in where nothing is asked, as between these requests."""
    ends = monotonic() + PATIENCE_S
    while monotonic() < ends:
        if recalled(engine).startswith(words):
            return True
    return False


def test_what_is_to_be_remembered_is_taken_in_between_requests(loaded: EngineClient) -> None:
    """Nothing is answered to it, and what cannot be taken in is left out."""
    loaded.send(Remember("a", ("a fox", "unreadable", "a lamp")))
    assert is_recalled(loaded, "a fox | a lamp")
    loaded.send(Remember("b", ("a crab",)))
    loaded.send(Forget("a"))
    assert is_recalled(loaded, "a crab | ")
    loaded.send(Forget(None))
    assert recalled(loaded) == "nothing"


class Forgetful:
    """A session that cannot take in anything."""

    def __init__(self) -> None:
        self.asked = 0
        self.cross_chat = self

    def digest(self) -> bool:
        self.asked += 1
        raise RuntimeError("no")


def test_what_cannot_be_taken_in_at_all_keeps_no_core_busy(capfd: pytest.CaptureFixture[str]) -> None:
    worker = Worker(BytesIO(), BytesIO(), "", "")
    session = Forgetful()
    worker._pair.session = session  # type: ignore[assignment]
    Timer(0.2, lambda: worker._inbox.put(ask("well"))).start()
    assert worker._next() == ask("well")
    assert session.asked == 1
    assert capfd.readouterr().err.count("RuntimeError: no") == 1


def test_nothing_is_remembered_before_a_pair_is_loaded(engine: EngineClient) -> None:
    engine.send(Remember("a", ("a fox",)))
    engine.send(Forget("a"))
    engine.send(Load(PAIR))
    seen = until(engine, lambda event: isinstance(event, Loaded | Failed))
    assert isinstance(seen[-1], Loaded)


def test_a_count_waits_for_a_pair_and_for_no_reply(engine: EngineClient) -> None:
    asked = (Message("user", "a fox"),)
    engine.send(Load(PAIR))
    engine.send(Count(7, asked))
    seen = until(engine, lambda event: isinstance(event, Counted | Failed))
    assert (seen[-1].id, isinstance(seen[-1], Counted)) == (7, True)
    engine.send(ask("stuck"))
    until(engine, lambda event: isinstance(event, Started))
    engine.send(Count(8, asked))
    assert until(engine, lambda event: isinstance(event, Counted | Finished | Failed))[-1] == Counted(8, 2, 1024)


class Reader(Forgetful):
    """A session that has read texts."""

    def __init__(self) -> None:
        super().__init__()
        self.saved = list[bool]()
        self.forgotten = list[str | None]()

    def digest(self) -> bool:
        return False

    def forget(self, _: Forget) -> None: ...

    def save_read(self, stop: Callable[[], bool]) -> None:
        """Tell whether it had to stop."""
        self.saved.append(stop())

    def forget_read(self, chat: str | None = None) -> None:
        self.forgotten.append(chat)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> tuple[Worker, Reader]:
    monkeypatch.setattr(process_worker, "REST_S", 0.05)
    worker = Worker(BytesIO(), BytesIO(), "", "")
    worker._pair.session = session = Reader()  # type: ignore[assignment]
    return worker, session


def test_read_texts_are_written_where_nothing_is_asked_for_a_while(reader: tuple[Worker, Reader]) -> None:
    worker, session = reader
    worker._inbox.put(ask("well"))
    assert worker._next() == ask("well")
    assert session.saved == []
    Timer(0.3, lambda: worker._inbox.put(ask("then"))).start()
    assert worker._next() == ask("then")
    assert session.saved == [False]


def test_read_texts_are_written_before_another_pair_comes_and_at_the_end(
    reader: tuple[Worker, Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, session = reader

    def left() -> None:
        raise SystemExit

    monkeypatch.setattr(process_worker, "_leave", left)
    with pytest.raises(SystemExit):
        worker._route(Shutdown())  # in the middle of a reply
    worker._waiting = True
    worker._route(Shutdown())
    assert session.saved == []
    with pytest.raises(SystemExit):
        worker._handle(worker._next())
    assert session.saved == [False]
    worker._pair._make_room()
    assert session.saved == [False, False]


def test_a_deleted_chat_leaves_nothing_that_was_read(reader: tuple[Worker, Reader]) -> None:
    worker, session = reader
    worker._handle(Forget(None))
    assert session.forgotten == []
    worker._handle(Forget("deleted"))
    worker._handle(ForgetRead())
    assert session.forgotten == ["deleted", None]
