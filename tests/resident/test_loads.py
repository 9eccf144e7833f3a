"""Who hears of a worker's loads, and what is loaded for clients that want unlike contexts; the process is scripted."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.process.wire import Sealed
from specchat.engine.protocol.events import (
    AwaitingClient,
    Event,
    Failed,
    Finished,
    Loaded,
    Loading,
    OtherClient,
    Started,
)
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import ReadTexts
from specchat.engine.protocol.requests import Cancel, Count, Load, Watch
from specchat.engine.protocol.stats import Stats
from specchat.resident import workers
from specchat.resident.broker import Broker
from specchat.resident.workers import Client, Restarted, SharedWorker
from tests.fake import INFO
from tests.process.conftest import PAIR, ask

SHORT, LONG, TOO_LONG = (replace(PAIR, context=context) for context in (2_000, 50_000, 10**9))
STARTED = Started(1, 3, 0, 0, Speculation())
NO_ROOM = Failed(None, "memory", "It does not fit.")


class Process:
    """Records what a worker's process is sent, and has the events that a test gives it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.come = deque[Event | Sealed]()
        self.send = self.sent.append
        self.pid = None

    def listen(self, arrived: Callable[[Any], object]) -> None: ...
    def start(self) -> None: ...
    def restart(self) -> None: ...
    def close(self) -> None: ...

    def poll(self) -> list[Event | Sealed]:
        found = list(self.come)
        self.come.clear()
        return found


class Windows:
    """Clients of one worker, each with the events that it was sent."""

    def __init__(self, process: Process, names: str) -> None:
        self.process = process
        self.worker = SharedWorker(None, "", lambda _: None)
        self.heard: dict[str, list[Event | Sealed]] = {name: [] for name in names}
        self.clients = {name: Client(name, 1, self.heard[name].append) for name in names}

    def load(self, name: str, pair: PairSpec) -> None:
        client = self.clients[name]
        if client.worker is None:
            client.worker = self.worker
            self.worker.clients.append(client)
        self.worker.load(client, pair)

    def come(self, *events: Event | Sealed) -> dict[str, list[Event | Sealed]]:
        """What each client hears of events of the process."""
        for events_of in self.heard.values():
            events_of.clear()
        self.process.come.extend(events)
        for client, event in self.worker.events():
            client.send(event)
        return self.heard

    @property
    def loads(self) -> list[PairSpec]:
        """The pairs that the process was told to load."""
        return [request.pair for request in self.process.sent if isinstance(request, Load)]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    process = Process()
    monkeypatch.setattr(workers, "EngineClient", lambda *_, **__: process)
    return Windows(process, "abc")


def loaded(context: int) -> Loaded:
    return Loaded(replace(INFO, context=context))


def test_a_shorter_context_waits_for_the_longer_one_that_is_being_loaded(windows: Windows) -> None:
    for name, pair in (("a", LONG), ("b", PAIR), ("c", SHORT)):
        windows.load(name, pair)
    assert windows.loads == [LONG]
    told = [Loading("weights", 0.5), loaded(50_000)]
    assert windows.come(*told) == dict.fromkeys("abc", told)


def test_as_many_tokens_as_fit_are_not_had_from_a_context_that_is_being_loaded(windows: Windows) -> None:
    as_many = replace(PAIR, long_context=True)
    windows.load("a", LONG)
    windows.load("b", as_many)
    windows.load("c", LONG)
    assert windows.loads == [LONG, as_many]
    assert windows.come(loaded(50_000)) == {"a": [loaded(50_000)], "b": [], "c": []}
    assert windows.come(loaded(90_000)) == {name: [loaded(90_000)] for name in "abc"}


@pytest.mark.parametrize("order", [(LONG, SHORT), (SHORT, LONG)])
def test_the_longest_of_the_shorter_contexts_is_loaded_where_the_longer_one_fails(
    windows: Windows, order: tuple[PairSpec, ...]
) -> None:
    windows.load("a", TOO_LONG)
    for name, pair in zip("bc", order, strict=True):
        windows.load(name, pair)
    assert windows.come(NO_ROOM) == {"a": [NO_ROOM], "b": [], "c": []}
    assert windows.loads == [TOO_LONG, LONG]
    assert windows.come(loaded(50_000)) == {"a": [], "b": [loaded(50_000)], "c": [loaded(50_000)]}
    windows.load("a", SHORT)
    assert windows.loads == [TOO_LONG, LONG]


def test_who_asks_again_for_the_longer_context_hears_of_it_once_and_of_its_failure(windows: Windows) -> None:
    windows.load("a", TOO_LONG)
    windows.load("b", SHORT)
    windows.load("b", TOO_LONG)
    assert windows.come(Loading("weights"), NO_ROOM)["b"] == [Loading("weights"), NO_ROOM]
    assert windows.loads == [TOO_LONG], "nobody is left that a shorter context is enough to"


def test_nothing_is_loaded_again_for_a_client_that_left(windows: Windows) -> None:
    windows.load("a", TOO_LONG)
    windows.load("b", SHORT)
    windows.worker.remove(windows.clients["b"])
    assert windows.come(NO_ROOM) == {"a": [NO_ROOM], "b": [], "c": []}
    assert windows.loads == [TOO_LONG]
    assert windows.worker.pair is None or not windows.worker.has(SHORT)


def test_a_failure_before_a_further_load_ends_leaves_that_one(windows: Windows) -> None:
    windows.load("a", SHORT)
    windows.come(loaded(2_000))
    windows.load("b", TOO_LONG)
    windows.load("c", replace(PAIR, id="another"))
    assert windows.come(NO_ROOM) == {"a": [], "b": [NO_ROOM], "c": []}
    assert windows.loads == [SHORT, TOO_LONG, replace(PAIR, id="another")]


def test_events_of_a_load_that_nobody_waits_for_are_told_to_nobody(windows: Windows) -> None:
    assert windows.come(Loading("weights"), loaded(2_000), NO_ROOM) == {"a": [], "b": [], "c": []}


def test_a_worker_that_died_forgets_its_loads_and_replies(windows: Windows) -> None:
    windows.load("a", LONG)
    windows.worker.forward(windows.clients["a"], ask("hello", 1))
    died = Failed(None, "died", "It was killed.")
    heard = windows.come(died)
    assert heard["a"] == [replace(died, id=1)]
    assert windows.come(loaded(50_000)) == {"a": [], "b": [], "c": []}
    windows.load("b", SHORT)
    assert windows.loads == [LONG, SHORT], "what was loaded is gone"
    assert windows.come(loaded(2_000)) == {"a": [], "b": [loaded(2_000)], "c": []}
    windows.worker.forward(windows.clients["b"], ask("hello", 1))
    assert windows.come(Finished(1, "stop", "", (), Stats()))["b"] == [Finished(1, "stop", "", (), Stats())]


def test_a_client_that_left_has_what_waits_for_it_cancelled(windows: Windows) -> None:
    windows.load("a", LONG)
    windows.come(loaded(50_000))
    windows.worker.forward(windows.clients["a"], ask("hello", 7))
    windows.worker.remove(windows.clients["a"])
    assert windows.process.sent[-1] == Cancel(7)
    assert windows.clients["a"].waiting == {}


def test_a_longer_context_than_as_many_as_fit_is_loaded(windows: Windows) -> None:
    windows.load("a", replace(PAIR, long_context=True))
    windows.come(loaded(40_000))
    windows.load("b", PAIR)
    assert len(windows.loads) == 1
    windows.load("b", LONG)
    assert windows.loads[1:] == [LONG]


def test_who_comes_while_a_reply_is_written_is_told_of_it(windows: Windows) -> None:
    windows.load("a", PAIR)
    windows.come(loaded(8_000))
    windows.worker.forward(windows.clients["a"], ask("hello", 1))
    windows.come(STARTED)
    windows.clients["b"].watched = Watch()
    windows.load("b", PAIR)
    assert windows.heard["b"] == [loaded(8_000), OtherClient(1, "a", 1, "hello"), STARTED]


def test_a_client_in_the_background_stays_where_its_pair_gets_a_longer_context(windows: Windows) -> None:
    windows.clients["b"].background = True
    windows.load("a", PAIR)
    windows.come(loaded(8_000))
    windows.load("b", PAIR)
    windows.load("a", LONG)
    assert windows.come(loaded(50_000))["b"] == [loaded(50_000)]
    windows.load("a", replace(PAIR, id="another"))
    assert [type(event) for event in windows.heard["b"]] == [Loaded, Failed]
    assert windows.clients["b"].worker is None


def test_replies_in_the_background_make_way_for_those_of_others_alone(windows: Windows) -> None:
    windows.clients["b"].background = windows.clients["c"].background = True
    for name in "abc":
        windows.load(name, PAIR)
    windows.come(loaded(8_000))
    for number, name in enumerate("bc"):
        windows.worker.forward(windows.clients[name], ask("hello", number))
    assert not any(isinstance(request, Cancel) for request in windows.process.sent)
    windows.worker.forward(windows.clients["a"], ask("hello", 7))
    assert [request for request in windows.process.sent if isinstance(request, Cancel)] == [Cancel(0), Cancel(1)]


def test_counts_of_others_keep_no_reply_waiting(windows: Windows) -> None:
    for name in "ab":
        windows.load(name, PAIR)
    windows.come(loaded(8_000))
    windows.worker.forward(windows.clients["a"], Count(1, ()))
    windows.worker.forward(windows.clients["b"], ask("hello", 2))
    assert windows.heard["b"] == [loaded(8_000)]
    windows.worker.forward(windows.clients["a"], ask("hello", 3))
    assert windows.heard["a"] == [loaded(8_000), AwaitingClient(3, "b", 1)]


async def test_a_worker_that_died_is_begun_again_for_all_its_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workers, "EngineClient", lambda *_, **__: Process())
    broker = Broker(tmp_path / "no.sock", None, "")
    clients = [Client(name, 1, lambda _: None) for name in "ab"]
    for client in clients:
        broker._handle(client, Load(PAIR))
    (worker,) = broker._workers
    worker.engine.come.append(Failed(None, "died", "It was killed."))  # type: ignore[attr-defined]
    broker._deliver()
    for client in clients:
        broker._handle(client, Load(PAIR))
    assert broker._workers == [worker]
    assert [client.worker for client in clients] == [worker, worker]


def test_a_worker_that_loads_again_for_somebody_who_left_is_not_idle(windows: Windows) -> None:
    on_a_gpu = Loaded(replace(INFO, load=replace(INFO.load, gpu="a card")))
    for name in "ab":
        windows.load(name, PAIR)
    windows.come(on_a_gpu)
    assert windows.worker.idle
    windows.worker.rest()
    windows.worker.forward(windows.clients["a"], Count(1, ()))
    assert windows.loads == [PAIR, PAIR]
    windows.worker.remove(windows.clients["a"])
    assert not windows.worker.idle
    assert windows.come(on_a_gpu)["b"] == [on_a_gpu]
    assert windows.worker.idle


def test_a_restart_loads_once_and_is_told_once(windows: Windows) -> None:
    for name in "ab":
        windows.load(name, PAIR)
    windows.come(loaded(8_000))
    windows.worker.forward(windows.clients["a"], ask("hello", 1))
    windows.come(Failed(None, "died", "It was killed."))
    windows.load("a", PAIR)
    windows.worker.forward(windows.clients["a"], ask("hello", 2))
    windows.heard["b"].clear()
    windows.worker.restart(windows.clients["a"], 5)
    assert (windows.heard["a"][-1], windows.clients["a"].waiting) == (Restarted(5), {})
    assert windows.heard["b"] == [], "it knows of a death since which it asked for nothing"
    assert windows.loads == [PAIR, PAIR], "the process loads again by itself"
    assert windows.come(loaded(8_000)) == {"a": [loaded(8_000)], "b": [], "c": []}
    assert windows.worker.info == loaded(8_000).info
    windows.load("b", PAIR)
    windows.worker.restart(windows.clients["a"], 6)
    assert windows.heard["b"] == [loaded(8_000), Failed(None, "died", "another window restarted it")]


def test_who_watches_is_told_of_replies_that_others_wait_for(windows: Windows) -> None:
    windows.clients["c"].background = True
    for name in "abc":
        windows.load(name, PAIR)
    windows.come(loaded(8_000))
    step = Sealed(1, b"a step")
    windows.worker.forward(windows.clients["a"], ask("hello", 1))
    windows.come(STARTED, step)
    about = OtherClient(1, "a", 1, "hello")
    windows.clients["a"].watch(Watch(steps=True))
    for steps in (False, True):
        windows.heard["b"].clear()
        windows.clients["b"].watch(Watch(steps=steps))
        assert windows.heard["b"] == [about, STARTED, *[step] * steps]
    end = replace(Finished(1, "stop", "", (), Stats()), read=ReadTexts(5, 6))
    assert windows.come(end) == {"a": [end], "b": [end], "c": []}
    assert windows.worker.read == ReadTexts(5, 6)
    windows.worker.forward(windows.clients["c"], ask("hello", 2))
    begun = replace(STARTED, id=2)
    assert windows.come(begun) == {"a": [], "b": [], "c": [begun]}
    windows.clients["b"].watch(Watch(steps=True))
    assert windows.heard["b"] == []
    windows.worker.forward(windows.clients["a"], ask("hello", 3))
    windows.come(replace(STARTED, id=3), Failed(None, "died", "It was killed."))
    windows.heard["b"].clear()
    windows.clients["b"].watch(Watch(steps=True))
    assert windows.heard["b"] == []


def test_steps_are_kept_for_who_comes_later_as_far_as_there_is_room(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_KEPT_BYTES", 12)
    for name in "ab":
        windows.load(name, PAIR)
    windows.worker.forward(windows.clients["a"], ask("hello", 1))
    steps = [Sealed(1, b"a step") for _ in range(4)]
    assert windows.come(loaded(8_000), STARTED, *steps)["a"] == [loaded(8_000), STARTED, *steps]
    windows.heard["b"].clear()
    windows.clients["b"].watch(Watch(steps=True))
    assert windows.heard["b"][2:] == steps[:2]


def test_files_that_loading_brought_are_those_that_are_loaded(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = ["not there"]
    monkeypatch.setattr(workers, "file_state", lambda _: state[0])
    monkeypatch.setattr(workers, "state_once_loaded", lambda *_: state[0])
    windows.load("a", PAIR)
    state[0] = "here"
    windows.come(loaded(8_000))
    windows.load("b", PAIR)
    assert windows.loads == [PAIR]
    state[0] = "replaced"
    windows.load("b", PAIR)
    assert windows.loads == [PAIR, PAIR]
