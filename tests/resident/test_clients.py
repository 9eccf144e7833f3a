"""Several clients to one resident engine."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.process import wire
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import AwaitingClient, Event, Failed, Finished, Loaded, Loading, Started, Step
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Count, Forget, Load, Remember
from specchat.resident import handshake, shared
from specchat.resident.address import address, locked
from specchat.resident.broker import Broker
from specchat.resident.control import engines
from specchat.resident.shared import open_engine
from specchat.resident.workers import Client
from tests.process.conftest import PAIR, SCRIPTED, ask, gone, over, until
from tests.process.test_worker import is_recalled
from tests.resident.conftest import Connect


def load(engine: EnginePort, pair: PairSpec = PAIR) -> str:
    """The name of the loaded pair, which the scripted loader makes of its process id."""
    engine.send(Load(pair))
    last = until(engine, lambda event: isinstance(event, Loaded))[-1]
    assert isinstance(last, Loaded)
    return last.info.name


def workers(runtime: Path) -> list[dict[str, Any]]:
    (resident,) = engines(runtime, "status")
    found: list[dict[str, Any]] = resident["workers"]
    return found


def text(engine: EnginePort) -> str:
    return "".join(piece.text for event in until(engine, over) if isinstance(event, Step) for piece in event.pieces)


def test_a_second_client_joins_what_is_loaded(connect: Connect, runtime: Path) -> None:
    one, other = connect(), connect()
    name = load(one)
    other.send(Load(PAIR))
    assert [type(event) for event in until(other, lambda event: isinstance(event, Loaded))] == [Loaded]
    assert load(other) == name
    (worker,) = workers(runtime)
    assert len(worker["clients"]) == 2
    assert worker["state"] == "loaded"


def contexts(engine: EnginePort, pair: PairSpec | None = None) -> list[int]:
    """Load a pair, or wait for one; contexts of what was loaded, 0 for a failure."""
    if pair is not None:
        engine.send(Load(pair))
    found = until(engine, lambda event: isinstance(event, Loaded | Failed))
    return [event.info.context if isinstance(event, Loaded) else 0 for event in found if not isinstance(event, Loading)]


def until_context(engine: EnginePort, context: int) -> None:
    while contexts(engine) != [context]:
        pass


def test_another_context_takes_no_second_worker(connect: Connect, runtime: Path) -> None:
    one, other, third = connect(), connect(), connect()
    usual = contexts(one, PAIR)
    assert contexts(other, replace(PAIR, context=50_000)) == contexts(one) == [50_000]
    assert contexts(third, PAIR) == contexts(third, replace(PAIR, context=2_000)) == [50_000] != usual
    assert len(workers(runtime)) == 1
    for engine in (one, other, third):
        engine.send(ask("hello"))
        assert isinstance(until(engine, over)[-1], Finished)
    assert contexts(third, replace(PAIR, long_context=True)) == usual, "as many as fit"
    assert contexts(one) == contexts(other) == usual


@pytest.mark.parametrize("first", [PAIR, replace(PAIR, context=50_000), replace(PAIR, context=10**9)])
def test_another_context_while_a_pair_loads_takes_no_second_worker(
    connect: Connect, runtime: Path, first: PairSpec
) -> None:
    """The longest that fits is loaded for all, in whatever order they are heard."""
    one, other, third = connect(), connect(), connect()
    for engine, pair in ((one, first), (other, replace(PAIR, context=50_000)), (third, PAIR)):
        engine.send(Load(pair))
    for engine, context in ((one, 0 if first.context == 10**9 else 50_000), (other, 50_000), (third, 50_000)):
        until_context(engine, context)
    for engine in (one, other, third):
        engine.send(ask("hello"))
        assert isinstance(until(engine, over)[-1], Finished)
    assert len(workers(runtime)) == 1


def test_a_context_that_does_not_fit_leaves_others_theirs(connect: Connect, runtime: Path) -> None:
    one, other = connect(), connect()
    usual = contexts(one, PAIR)
    assert contexts(other, replace(PAIR, context=10**9)) == [0]
    assert contexts(one) == usual
    one.send(ask("hello"))
    assert isinstance(until(one, over)[-1], Finished)
    assert len(workers(runtime)) == 1
    assert contexts(other, PAIR) == usual


def test_files_that_were_replaced_are_loaded_anew(connect: Connect, runtime: Path, tmp_path: Path) -> None:
    pair = replace(PAIR, target=ModelSource(path=str(tmp_path)))
    (tmp_path / "config.json").write_text("one")
    one, other = connect(), connect()

    def loads(engine: EnginePort) -> list[type[Event]]:
        engine.send(Load(pair))
        return [type(event) for event in until(engine, lambda event: isinstance(event, Loaded))]

    assert Loading in loads(one)
    assert loads(one) == [Loaded]
    (tmp_path / "config.json").write_text("another")
    assert Loading in loads(one)
    assert loads(other) == [Loaded]
    (tmp_path / "config.json").write_text("a third one")
    assert Loading in loads(other)
    assert len(workers(runtime)) == 2  # the other client's chat goes on with what it has
    one.send(ask("hello"))
    assert isinstance(until(one, over)[-1], Finished)


def test_clients_that_wait_for_one_pair_hear_of_one_load(connect: Connect, runtime: Path) -> None:
    one, other = connect(), connect()
    one.send(Load(PAIR))
    other.send(Load(PAIR))
    ends = [until(engine, lambda event: isinstance(event, Loaded))[-1] for engine in (one, other)]
    assert ends[0] == ends[1]
    assert len(workers(runtime)) == 1


def test_replies_of_the_same_number_go_where_they_were_asked(connect: Connect) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    one.send(ask("hello", 1))
    other.send(ask("noise", 1))
    for engine in (one, other):
        assert {event.id for event in until(engine, over) if not isinstance(event, Loading | Loaded)} == {1}


def test_a_reply_that_waits_for_another_client_says_for_which(connect: Connect) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    one.send(ask("endless", 1))
    until(one, lambda event: isinstance(event, Started))
    other.send(Count(1, ()))
    other.send(ask("hello", 2))
    awaiting = until(other, lambda event: isinstance(event, AwaitingClient))
    assert awaiting == [AwaitingClient(2, "test", os.getpid())]
    one.send(Cancel(1))
    assert isinstance(until(one, over)[-1], Finished)
    assert isinstance(until(other, over)[-1], Finished)
    one.send(ask("hello", 3))
    assert not any(isinstance(event, AwaitingClient) for event in until(one, over))


def test_another_pair_gets_a_worker_of_its_own_only_beside_others(connect: Connect, runtime: Path) -> None:
    one, other = connect(), connect()
    load(one)
    first = workers(runtime)[0]["pid"]
    load(one, replace(PAIR, id="second"))
    assert [worker["pid"] for worker in workers(runtime)] == [first]
    load(other, replace(PAIR, id="second"))
    load(other, PAIR)
    assert len(workers(runtime)) == 2
    one.send(ask("hello"))
    other.send(ask("hello"))
    assert isinstance(until(one, over)[-1], Finished)
    assert isinstance(until(other, over)[-1], Finished)


def test_a_crash_of_the_worker_is_told_to_all_and_one_is_started_again(connect: Connect, runtime: Path) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    one.send(ask("stuck", 7))
    until(one, lambda event: isinstance(event, Started))
    other.send(ask("hello", 8))
    before = workers(runtime)[0]["pid"]
    os.kill(before, signal.SIGKILL)
    assert [event.id for event in until(one, over) if isinstance(event, Failed)] == [7]
    assert [event.id for event in until(other, over) if isinstance(event, Failed)] == [8]
    for engine in (one, other):
        engine.restart()
    for engine in (one, other):
        until(engine, lambda event: isinstance(event, Loaded))
    (worker,) = workers(runtime)
    assert worker["pid"] != before
    assert len(worker["clients"]) == 2
    other.send(ask("hello", 9))
    assert isinstance(until(other, over)[-1], Finished)


def test_a_restart_is_told_to_the_other_client(connect: Connect) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    one.send(ask("stuck", 1))
    until(one, lambda event: isinstance(event, Started))
    one.restart()
    (told,) = [event for event in until(other, over) if isinstance(event, Failed)]
    assert told == Failed(None, "died", "another window restarted it")
    other.restart()
    for engine in (one, other):
        until(engine, lambda event: isinstance(event, Loaded))
        engine.send(ask("hello", 2))
        assert isinstance(until(engine, over)[-1], Finished)


def test_a_killed_client_leaves_the_others_and_what_it_asked_for_ends(
    connect: Connect, runtime: Path, tmp_path: Path
) -> None:
    one = connect()
    load(one)
    code = f"""
        from pathlib import Path
        from specchat.engine.protocol.events import Loaded, Step
        from specchat.engine.protocol.requests import Load
        from specchat.resident.shared import open_engine
        from tests.process.conftest import PAIR, SCRIPTED, ask, until
        log = Path({str(tmp_path / "engine.log")!r})
        engine = open_engine(Path({str(runtime)!r}), log, "killed", 0, loader=SCRIPTED)
        engine.start()
        engine.send(Load(PAIR))
        until(engine, lambda event: isinstance(event, Loaded))
        engine.send(ask("endless"))
        until(engine, lambda event: isinstance(event, Step))
        print("writes", flush=True)
        input()
    """
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"writes\n"
        assert [found["name"] for found in workers(runtime)[0]["clients"]] == ["test", "killed"]
        other.kill()
    one.send(ask("hello", 3))
    assert isinstance(until(one, over)[-1], Finished)
    assert [found["name"] for found in workers(runtime)[0]["clients"]] == ["test"]


def test_the_engine_ends_with_its_last_client_and_leaves_nothing(connect: Connect, runtime: Path) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    (resident,) = engines(runtime, "status")
    one.close()
    other.send(ask("hello"))
    assert isinstance(until(other, over)[-1], Finished)
    other.close()
    gone(resident["pid"])
    gone(resident["workers"][0]["pid"])
    assert not list(runtime.glob("*.sock"))


def test_an_engine_that_is_killed_is_told_and_started_again(connect: Connect, runtime: Path) -> None:
    one = connect()
    load(one)
    (resident,) = engines(runtime, "status")
    os.kill(resident["pid"], signal.SIGKILL)
    assert isinstance(until(one, over)[-1], Failed)
    assert not one.alive
    gone(resident["workers"][0]["pid"])
    one.restart()
    until(one, lambda event: isinstance(event, Loaded))
    one.send(ask("hello"))
    assert isinstance(until(one, over)[-1], Finished)


def test_stop_ends_it(connect: Connect, runtime: Path) -> None:
    one = connect()
    load(one)
    (stopped,) = engines(runtime, "stop")
    assert isinstance(until(one, over)[-1], Failed)
    gone(stopped["pid"])
    assert list(engines(runtime, "status")) == []


def test_clients_that_open_at_once_find_one_engine(connect: Connect, runtime: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        clients = [future.result() for future in [pool.submit(connect) for _ in range(6)]]
    assert len({load(engine) for engine in clients}) == 1
    assert len(list(runtime.glob("*.sock"))) == 1


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "sent",
    [
        wire.framed(Load(PAIR))[:-3],
        b"\xff" * 4096,
        wire.HEADER.pack(1 << 31, -1) + b"flood",
        wire.HEADER.pack(40, -1) + b"cos\nsystem\n(S'touch broken'\ntR.".ljust(40, b"."),
    ],
    ids=["half", "noise", "endless", "a pickle that runs something"],
)
def test_a_client_that_sends_nonsense_harms_nobody(connect: Connect, runtime: Path, sent: bytes) -> None:
    one = connect()
    load(one)
    path = next(runtime.glob("*.sock"))
    link = shared.connected(path)
    assert link is not None
    with link:
        link.sendall(handshake.encoded(want="client", name="bad", pid=1, linger_s=0) + sent)
        link.shutdown(socket.SHUT_WR)
        assert handshake.parsed(link.makefile("rb").readline()) is not None
        link.recv(1)
    one.send(ask("hello"))
    assert isinstance(until(one, over)[-1], Finished)
    assert not Path("broken").exists()


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "said", [b"", b"{}\n", b"GET / HTTP/1.1\n\n", b'{"specchat": 1, "want": "cake"}\n', b"x" * 70000]
)
def test_whoever_is_no_client_is_shown_out(connect: Connect, runtime: Path, said: bytes) -> None:
    one = connect()
    load(one)
    link = shared.connected(next(runtime.glob("*.sock")))
    assert link is not None
    with link:
        link.sendall(said)
        link.shutdown(socket.SHUT_WR)
        assert link.recv(1) == b""
    one.send(ask("hello"))
    assert isinstance(until(one, over)[-1], Finished)


def test_a_client_that_floods_is_refused_and_the_others_are_served(connect: Connect) -> None:
    flooding, other = connect(), connect()
    load(flooding)
    load(other)
    flooding.send(ask("endless", 0))  # or those of a quick worker would have ended before there are too many
    for number in range(1, 200):
        flooding.send(ask("hello", number))
        flooding.send(Cancel(number))
    flooding.send(Cancel(0))
    other.send(ask("hello"))
    assert isinstance(until(other, over)[-1], Finished)
    ends = [
        event for event in until(flooding, lambda event: over(event) and getattr(event, "id", 0) == 199) if over(event)
    ]
    assert any(isinstance(event, Failed) and event.kind == "request" for event in ends)


def test_a_socket_that_nobody_listens_at_is_replaced(connect: Connect, runtime: Path) -> None:
    path = address(runtime, SCRIPTED)
    assert path is not None
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert load(connect())


def test_something_else_that_listens_there_is_left_alone(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "ANSWER_S", 0.1)
    monkeypatch.setattr(shared, "JOIN_S", 0.5)
    path = address(runtime, SCRIPTED)
    assert path is not None
    with locked(path), socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        foreign.listen()
        assert isinstance(open_engine(runtime, None, "test", 0, loader=SCRIPTED), EngineClient)


def test_another_users_socket_is_not_joined(connect: Connect, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(connect())
    monkeypatch.setattr(handshake, "peer", lambda _: os.getuid() + 1)
    monkeypatch.setattr(shared, "JOIN_S", 0.2)
    assert isinstance(open_engine(runtime, None, "test", 0, loader=SCRIPTED), EngineClient)


def test_where_no_socket_can_be_had_the_engine_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir(mode=0o700)
    wide = tmp_path / "wide"
    wide.mkdir()
    wide.chmod(0o755)
    for folder in (long, wide, tmp_path / "missing"):
        assert isinstance(open_engine(folder, None, "test", 0, loader=SCRIPTED), EngineClient)
    monkeypatch.delattr(socket, "AF_UNIX")
    assert isinstance(open_engine(tmp_path, None, "test", 0, loader=SCRIPTED), EngineClient)


def test_another_environment_has_another_engine(tmp_path: Path) -> None:
    names = {address(tmp_path, SCRIPTED, {"CUDA_VISIBLE_DEVICES": value}) for value in ("0", "1", "0")}
    assert len(names) == 2
    assert address(tmp_path, SCRIPTED, {"TERM": "xterm"}) == address(tmp_path, SCRIPTED, {"TERM": "dumb"})


def test_a_message_names_nothing_but_messages() -> None:
    assert wire.opened(pickle.dumps(Load(PAIR))) == Load(PAIR)
    for data in (pickle.dumps(os.system), pickle.dumps(print), pickle.dumps(load)):
        with pytest.raises(pickle.UnpicklingError):
            wire.opened(data)


async def test_an_unused_worker_stays_as_long_after_its_last_use_as_after_its_first(tmp_path: Path) -> None:
    broker, reader = Broker(tmp_path / "no.sock", None, SCRIPTED), Client("test", 1, lambda _: None)
    broker._linger_s = 3600
    broker._handle(reader, Load(PAIR))
    worker = reader.worker
    assert worker is not None
    try:
        broker._release(reader)
        first = broker._idle[worker]
        broker._handle(reader, Load(PAIR))
        assert reader.worker is worker
        assert first.cancelled()
        broker._release(reader)
        assert not broker._idle[worker].cancelled()
    finally:
        worker.engine.close()


def test_a_deleted_chat_is_forgotten_by_all_workers(connect: Connect, runtime: Path) -> None:
    """It may have been read by other pairs, and a command may have deleted it."""
    one, other = connect(), connect()
    load(one)
    load(other, replace(PAIR, id="another"))
    for forget in (lambda: one.send(Forget("a")), lambda: list(engines(runtime, "forget", "a"))):
        other.send(Remember("a", ("a fox",)))
        other.send(Remember("b", ("a crab",)))
        assert is_recalled(other, "a fox | a crab")
        forget()
        assert is_recalled(other, "a crab | ")
        other.send(Forget("b"))
        assert is_recalled(other, "nothing")
