"""A GPU's memory given back by an engine that has nothing to do, and the pair loaded again at the next request."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from specchat.cli import prepare
from specchat.config.settings import UserSettings
from specchat.engine.protocol.events import Counted, Event, Failed, Finished, Loaded, Loading, Started
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Count, Load
from specchat.resident import shared
from specchat.resident.shared import open_engine
from specchat.resident.workers import Client, SharedWorker
from tests.process.conftest import PAIR, SCRIPTED, ask, over, until
from tests.resident.test_clients import workers


class Windows:
    """Two clients of a worker, each with the events that it was sent."""

    def __init__(self, pair: PairSpec) -> None:
        self.events: list[list[Event]] = [[], []]
        self.worker = SharedWorker(None, SCRIPTED, lambda _: None)
        self.clients = [Client(f"window {number}", number, self.events[number].append) for number in range(2)]
        for client in self.clients:
            client.worker = self.worker
            self.worker.clients.append(client)
            self.worker.load(client, pair)
        self.deliver(lambda: all(self.heard(number, Loaded) for number in range(2)))

    def heard(self, number: int, kind: type[Event]) -> list[Event]:
        return [event for event in self.events[number] if isinstance(event, kind)]

    def deliver(self, enough: Callable[[], bool]) -> None:
        """Pass on events until that is enough."""
        while not enough():
            for event in self.worker.engine.events(0.05):
                for client, passed in self.worker._event(event):
                    client.send(passed)
                if enough():
                    return

    @property
    def pid(self) -> int | None:
        return self.worker.engine.pid


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    made = Windows(replace(PAIR, id="on a gpu", target=ModelSource(path=str(tmp_path))))
    yield made
    made.worker.engine.close()


def test_a_pair_comes_back_with_the_next_request(windows: Windows) -> None:
    worker, first = windows.worker, windows.pid
    assert worker.idle
    worker.rest()
    assert (worker.resting, worker.idle, windows.pid) == (True, False, None)
    for events in windows.events:
        events.clear()
    assert worker.pair is not None
    worker.load(windows.clients[1], worker.pair)
    assert (windows.heard(1, Loaded) != [], windows.pid) == (True, None), "who joins needs no memory yet"
    worker.forward(windows.clients[0], Cancel(1))
    assert windows.pid is None
    worker.forward(windows.clients[0], Count(2, ()))
    assert not worker.idle
    windows.deliver(lambda: bool(windows.heard(0, Counted)))
    assert windows.pid not in (None, first)
    assert [bool(windows.heard(number, Loading)) for number in range(2)] == [True, True], "both are told what is read"
    assert worker.idle
    worker.rest()
    worker.restart(windows.clients[0], 1)
    assert not worker.resting


def test_a_pair_that_does_not_come_back_is_told_to_all(windows: Windows, tmp_path: Path) -> None:
    windows.worker.rest()
    (tmp_path / "gone").mkdir()
    windows.worker.forward(windows.clients[0], Count(1, ()))
    windows.deliver(lambda: any(event.id == 1 for event in windows.heard(0, Failed)))
    for number in range(2):
        assert [event.message for event in windows.heard(number, Failed) if event.id is None] == [  # type: ignore[attr-defined]
            "There is no such folder."
        ]


def test_a_worker_without_a_gpu_or_with_something_to_do_keeps_what_it_has(windows: Windows) -> None:
    worker = windows.worker
    windows.clients[1].waiting[3] = True
    assert not worker.idle
    windows.clients[1].waiting.clear()
    assert worker.idle
    worker.dead = True
    assert not worker.idle
    on_a_processor = Windows(PAIR)
    try:
        assert not on_a_processor.worker.idle
    finally:
        on_a_processor.worker.engine.close()


@pytest.mark.parametrize(("idle_s", "state"), [(0.01, "resting"), (0.0, "loaded")])
def test_windows_share_a_rest(idle_s: float, state: str, runtime: Path, tmp_path: Path) -> None:
    """By their settings; a reply after it is as any."""
    one: EnginePort = open_engine(runtime, tmp_path / "engine.log", "test", 0, idle_s, SCRIPTED)
    one.start()
    one.send(Load(replace(PAIR, id="on a gpu")))
    until(one, lambda event: isinstance(event, Loaded))
    while idle_s and workers(runtime)[0]["state"] != state:
        pass
    assert workers(runtime)[0]["state"] == state
    one.send(ask("hello"))
    told = until(one, over)
    assert any(isinstance(event, Loaded) for event in told) == bool(idle_s)
    assert isinstance(told[-1], Finished)
    one.close()
    assert any(isinstance(event, Started) for event in told)


@pytest.mark.parametrize(
    ("variable", "setting", "seconds"), [("", None, 900.0), ("3", 7, 180.0), ("0", None, 0.0), ("", 7, 420.0)]
)
def test_the_minutes_are_those_of_the_environment_then_of_the_settings(
    variable: str, setting: int | None, seconds: float, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[float, float]] = []
    monkeypatch.setenv("SPECCHAT_GPU_MINUTES", variable)
    monkeypatch.setenv("SPECCHAT_ENGINE_MINUTES", "2")
    monkeypatch.setattr(shared, "open_engine", lambda *all_of: told.append(all_of[3:]))
    prepared = SimpleNamespace(
        settings=UserSettings(gpu_minutes=setting), paths=SimpleNamespace(runtime=runtime, state=runtime)
    )
    monkeypatch.setattr(prepare, "keeps_state", lambda _: False)
    prepare._shared(prepared, "test")  # type: ignore[arg-type]
    assert told == [(120.0, seconds)]
    monkeypatch.setenv("SPECCHAT_GPU_MINUTES", "soon")
    with pytest.raises(click.UsageError, match="SPECCHAT_GPU_MINUTES is soon: it has to be a number of minutes"):
        prepare._shared(prepared, "test")  # type: ignore[arg-type]
