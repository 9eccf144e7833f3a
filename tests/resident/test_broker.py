"""What the resident process does with connections, clients and workers; workers' processes are scripted."""

import asyncio
import os
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specchat.engine.process import wire
from specchat.engine.protocol.events import Failed, Loaded, Loading
from specchat.engine.protocol.pair_info import ReadTexts
from specchat.engine.protocol.requests import Load
from specchat.resident import broker as module
from specchat.resident import handshake, workers
from specchat.resident.address import MAX_PATH, address
from specchat.resident.broker import Broker
from specchat.resident.workers import Client, SharedWorker
from tests.process.conftest import PAIR
from tests.resident.test_loads import Process, loaded

OTHER = replace(PAIR, id="another")


class Writer:
    """The end of a connection that keeps what is written, with bytes that nobody has read."""

    def __init__(self, unread: int = 0) -> None:
        self.written, self.closed, self.aborted = b"", False, False
        self.transport = SimpleNamespace(get_write_buffer_size=lambda: unread, abort=self._abort)

    def _abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str) -> str:
        return name

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Broker:
    monkeypatch.setattr(workers, "EngineClient", lambda *_, **__: Process())
    monkeypatch.setattr(handshake, "peer", lambda _: os.getuid())
    made = Broker(tmp_path / "no.sock", None, "")
    made._linger_s = 3600.0
    return made


def client(name: str, background: bool = False) -> tuple[Client, list[Any]]:
    heard: list[Any] = []
    return Client(name, 1, heard.append, background), heard


async def connect(broker: Broker, **said: object) -> Writer:
    """A connection that says hello, and leaves."""
    reader, writer = asyncio.StreamReader(), Writer()
    reader.feed_data(handshake.encoded(**said))
    reader.feed_eof()
    await broker._accept(reader, writer)  # type: ignore[arg-type]
    assert writer.closed
    return writer


async def test_another_user_is_told_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await connect(broker, want="status")).written
    monkeypatch.setattr(handshake, "peer", lambda _: os.getuid() + 1)
    assert not (await connect(broker, want="status")).written
    await connect(broker, want="stop")
    assert not broker._over.is_set()


async def test_what_read_texts_take_is_nothing_once_all_are_forgotten(broker: Broker) -> None:
    broker._handle(client("a")[0], Load(PAIR))
    (worker,) = broker._workers
    for chat, left in (("a", ReadTexts(5)), ("", ReadTexts())):
        worker.read = ReadTexts(5)
        await connect(broker, want="forget", chat=chat)
        assert worker.read == left


async def test_a_client_in_the_background_leaves_the_waits_of_others_and_each_one_holds_the_end(broker: Broker) -> None:
    broker._end_after(3600)
    for background, linger in ((True, 3600.0), (False, 7.0)):
        before = broker._ending
        await connect(broker, want="client", name="a", pid=1, linger_s=7, background=background)
        assert broker._linger_s == linger
        assert before is not None
        assert before.cancelled()
        assert broker._ending is not None
        assert not broker._ending.cancelled()
    broker._ending.cancel()


async def test_a_client_that_takes_another_pair_leaves_its_worker_to_the_others(broker: Broker) -> None:
    (one, _), (other, _) = client("a"), client("b")
    for each in (one, other):
        broker._handle(each, Load(PAIR))
    broker._handle(one, Load(OTHER))
    first, second = broker._workers
    assert (first.clients, second.clients) == ([other], [one])


async def test_a_worker_that_nobody_uses_is_for_the_next_pair(broker: Broker) -> None:
    (one, _), (other, _) = client("a"), client("b")
    broker._handle(one, Load(PAIR))
    broker._release(one)
    broker._handle(other, Load(OTHER))
    (worker,) = broker._workers
    assert worker.clients == [other]
    broker._release(other)
    broker._idle[worker].cancel()
    broker._end_idle(worker)
    assert (broker._workers, broker._last_request) == ([], {})


async def test_a_pair_that_is_being_loaded_is_not_had_in_the_background(broker: Broker) -> None:
    (one, _), (behind, heard) = client("a"), client("b", background=True)
    broker._handle(one, Load(PAIR))
    broker._handle(behind, Load(PAIR))
    assert [type(event) for event in heard] == [Failed]
    broker._workers[0].engine.come.extend([Loading("weights"), loaded(8_000)])  # type: ignore[attr-defined]
    broker._deliver()
    broker._handle(behind, Load(PAIR))
    assert [type(event) for event in heard] == [Failed, Loaded]


@pytest.mark.parametrize("idle_s", [10.0, 0.0])
async def test_a_worker_rests_so_long_after_it_was_busy(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, idle_s: float
) -> None:
    now, rested, worker = [0.0], list[float](), SharedWorker(None, "", lambda _: None)
    monkeypatch.setattr(SharedWorker, "idle", property(lambda _: now[0] > 100))
    monkeypatch.setattr(SharedWorker, "rest", lambda _: rested.append(now[0]))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "LOOK_S", 3600)
    broker._workers, broker._idle_s = [worker], idle_s
    for second in range(130):
        now[0] = float(second)
        broker._rest()
        if rested:
            break
    assert rested == ([110.0] if idle_s else [])


def test_a_client_that_does_not_read_is_cut_off() -> None:
    for unread, aborted in ((module.MAX_UNREAD, False), (module.MAX_UNREAD + 1, True)):
        writer = Writer(unread)
        module._send(writer, loaded(8_000))  # type: ignore[arg-type]
        assert (writer.aborted, bool(writer.written)) == (aborted, not aborted)


async def test_a_message_that_says_it_is_too_long_is_not_waited_for() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(wire.HEADER.pack(wire.MAX_BYTES + 1, -1))
    reader.feed_eof()
    with pytest.raises(pickle.UnpicklingError, match="bytes"):
        await module._read(reader)


@pytest.mark.parametrize("said", [b"[1]\n", b'"specchat"\n', b"7\n"])
def test_json_that_is_no_object_is_none_of_ours(said: bytes) -> None:
    assert handshake.parsed(said) is None


@pytest.mark.parametrize(("value", "known"), [(3, 3.0), (0.5, 0.5), (-1, 0.0), (True, 0.0), ("3", 0.0), (None, 0.0)])
def test_a_number_of_a_handshake_is_none_below_zero(value: object, known: float) -> None:
    assert handshake.number({"idle_s": value}, "idle_s") == known


@pytest.mark.parametrize(("longer", "there"), [(0, True), (1, False)])
def test_a_socket_has_a_path_that_every_system_takes(longer: int, there: bool) -> None:
    name = len("/0123456789abcdef.sock")
    assert (address(Path("/" + "x" * (MAX_PATH - name - 1 + longer)), "", {}) is not None) == there
