"""The engine client against a real worker process with a scripted session."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.engine.hardware.gpu_failure import AGAIN, ONCE_MORE
from specchat.engine.hardware.gpu_record import FAILURES, VARIABLE, GpuRecord
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Changed, Event, Failed, Finished, Loaded, Loading, Started, Step
from specchat.engine.protocol.options import Message, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Change, Generate, Load, Shutdown
from tests.process.conftest import PAIR, PATIENCE_S, SCRIPTED, ask, gone, over, pid_of, until


def test_a_pair_is_loaded_with_progress(engine: EnginePort) -> None:
    engine.send(Load(PAIR))
    *progress, last = until(engine, lambda event: isinstance(event, Loaded))
    assert [event.what for event in progress if isinstance(event, Loading)] == [
        "starting the engine",
        "reading /nowhere",
    ]
    assert isinstance(last, Loaded)
    assert last.info.name == f"Pair {pid_of(engine)}"


def test_a_reply_comes_step_by_step(loaded: EnginePort) -> None:
    loaded.send(ask("hello"))
    started, *steps, finished = until(loaded, over)
    assert isinstance(started, Started)
    assert len(steps) > 1
    assert isinstance(finished, Finished)
    said = "".join(piece.text for step in steps if isinstance(step, Step) for piece in step.pieces)
    assert finished.text == said == "Once there was a fox."


def test_poll_never_waits_and_gives_each_event_once(engine: EnginePort) -> None:
    engine.send(Load(PAIR))
    seen: list[Event] = []
    while not any(isinstance(event, Loaded) for event in seen):
        seen += engine.poll()
    assert len(seen) == 3
    assert engine.poll() == []


def test_events_end_when_nothing_comes_in_time(loaded: EnginePort) -> None:
    assert list(loaded.events(0.01)) == []


def test_cancel_reaches_the_running_reply(loaded: EnginePort) -> None:
    loaded.send(ask("endless"))
    until(loaded, lambda event: isinstance(event, Step))
    loaded.send(Cancel(1))
    *_, finished = until(loaded, over)
    assert isinstance(finished, Finished)
    assert finished.reason == "cancelled"
    assert finished.text.startswith("word ")


def test_cancel_of_a_waiting_reply_keeps_it_from_starting(loaded: EnginePort) -> None:
    loaded.send(ask("endless", 1))
    loaded.send(replace(ask("endless", 2), prefill="Well"))
    loaded.send(Cancel(2))
    loaded.send(Cancel(1))
    events = until(loaded, lambda event: isinstance(event, Finished) and event.id == 2)
    assert [event.id for event in events if isinstance(event, Started)] in ([1], [])
    assert events[-1].text == "Well"  # type: ignore[union-attr]


def test_a_late_cancel_does_not_touch_the_next_reply(loaded: EnginePort) -> None:
    loaded.send(ask("hello", 1))
    until(loaded, over)
    loaded.send(Cancel(1))
    loaded.send(ask("hello", 2))
    *_, finished = until(loaded, over)
    assert isinstance(finished, Finished)
    assert (finished.id, finished.reason) == (2, "stop")


def test_change_reaches_the_running_reply(loaded: EnginePort) -> None:
    loaded.send(ask("endless"))
    until(loaded, lambda event: isinstance(event, Step))
    loaded.send(Change(1, Speculation.of("lookup")))
    events = until(loaded, lambda event: isinstance(event, Step) and event.strategy == "lookup")
    assert any(isinstance(event, Changed) and event.speculation == Speculation("lookup", 8) for event in events)
    loaded.send(Cancel(1))
    until(loaded, over)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("too long", "context", "It does not fit."),
        ("memory", "memory", "Memory ran out while the reply was being written"),
        ("bug", "internal", "ZeroDivisionError: a secret)"),
    ],
)
def test_errors_are_told_in_a_sentence_and_leave_the_engine_usable(
    loaded: EngineClient, log: Path, said: str, kind: str, words: str
) -> None:
    loaded.send(ask(said))
    *_, failed = until(loaded, over)
    assert isinstance(failed, Failed)
    assert (failed.id, failed.kind) == (1, kind)
    assert words in failed.message
    assert "\n" not in failed.message
    if kind == "internal":
        assert str(log) in failed.message
        assert "Traceback" in log.read_text()
    loaded.send(ask("hello", 2))
    assert isinstance(until(loaded, over)[-1], Finished)


def test_memory_that_runs_out_in_a_reply_keeps_what_was_written(loaded: EnginePort) -> None:
    loaded.send(ask("memory later"))
    started, *steps, failed = until(loaded, over)
    assert isinstance(started, Started)
    assert "".join(piece.text for step in steps if isinstance(step, Step) for piece in step.pieces).startswith("Once")
    assert failed == Failed(
        1,
        "memory",
        "Memory ran out while the reply was being written; what there is of it is kept. "
        'Set quant = "nf4" for the target in models.toml, or close other programs.',
    )
    loaded.send(ask("hello", 2))
    assert isinstance(until(loaded, over)[-1], Finished)


def test_memory_that_runs_out_at_load_leaves_the_engine_usable(engine: EnginePort) -> None:
    engine.send(Load(PairSpec("huge", "Huge", PAIR.target, context=8192)))
    assert until(engine, over)[-1] == Failed(
        None,
        "memory",
        "Memory ran out while Huge was being loaded. Set context = 4096 for the pair in models.toml, or close other "
        "programs.",
    )
    engine.send(Load(PAIR))
    assert isinstance(until(engine, lambda event: isinstance(event, Loaded))[-1], Loaded)


def test_a_gpu_that_fails_is_told_once_and_a_fresh_engine_loads_the_pair_again(loaded: EnginePort, log: Path) -> None:
    first = pid_of(loaded)
    loaded.send(ask("gpu later", 3))
    started, *steps, failed = list(loaded.events(PATIENCE_S))
    assert isinstance(started, Started)
    assert "".join(piece.text for step in steps if isinstance(step, Step) for piece in step.pieces).startswith("Once")
    assert failed == Failed(
        3,
        "died",
        "The GPU failed (CUDA error: an illegal memory access was encountered) while the reply was being written; "
        f"what there is of it is kept; see {log}.",
    )
    assert loaded.poll() == []
    assert not loaded.alive
    assert "illegal memory access" in log.read_text()
    loaded.restart()
    assert isinstance(until(loaded, lambda event: isinstance(event, Loaded))[-1], Loaded)
    assert pid_of(loaded) != first
    loaded.send(ask("hello", 4))
    assert isinstance(until(loaded, over)[-1], Finished)


def test_a_gpu_that_fails_at_load_ends_the_engine(engine: EnginePort, log: Path) -> None:
    engine.send(Load(PairSpec("gpu", "Fast", PAIR.target)))
    assert list(engine.events(PATIENCE_S))[-1] == Failed(
        None,
        "died",
        "The GPU failed (Triton Error [CUDA]: an illegal instruction was encountered) while Fast was being loaded; "
        f"see {log}.",
    )
    assert engine.poll() == []
    engine.start()
    engine.send(Load(PAIR))
    assert isinstance(until(engine, lambda event: isinstance(event, Loaded))[-1], Loaded)


def test_a_pair_that_loses_the_gpu_is_loaded_on_the_cpu_by_a_fresh_engine(loaded: EnginePort) -> None:
    """Which does what was asked since, and tries the GPU again for the next pair."""
    before = pid_of(loaded)
    lost = replace(PAIR, id="gpu or cpu", draft=PAIR.target, trust_remote_code=True)
    loaded.send(Load(lost))
    loaded.send(ask("hello", 5))
    events = until(loaded, over)
    assert pid_of(loaded) != before
    assert not [event for event in events if isinstance(event, Failed)]
    (info,) = [event.info for event in events if isinstance(event, Loaded)]
    assert (
        info.notes.note == "the GPU failed: CUDA error: an illegal memory access was encountered; runs code of its own"
    )
    assert Loading("the GPU failed; going to the CPU", 0.1) in events
    assert isinstance(events[-1], Finished)
    assert events[-1].id == 5
    fresh = pid_of(loaded)
    loaded.send(Load(replace(lost, name="Other")))
    until(loaded, lambda event: isinstance(event, Loaded))
    assert pid_of(loaded) != fresh, "the GPU was tried again"
    loaded.send(Load(PAIR))
    *_, last = until(loaded, lambda event: isinstance(event, Loaded))
    assert isinstance(last, Loaded)
    assert last.info.notes.note == ""


def test_a_pair_that_asks_for_the_gpu_is_not_loaded_on_the_cpu(loaded: EnginePort) -> None:
    """Where nothing is remembered, and a fresh engine would lose the GPU again."""
    asking = replace(PAIR, id="gpu or cpu", target=replace(PAIR.target, device="cuda"))
    loaded.send(Load(asking))
    *_, failed = until(loaded, lambda event: isinstance(event, Loaded | Failed))
    assert isinstance(failed, Failed)
    assert (failed.id, failed.kind) == (None, "died")
    assert 'Try again, or say device = "cpu".' in failed.message


def test_a_gpu_that_is_known_to_fail_is_left_to_the_loader_of_a_fresh_engine(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At load, and after a reply lost it."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "data" / "gpu.json"))
    engine = EngineClient(log, SCRIPTED)
    engine.start()
    try:
        engine.send(Load(replace(PAIR, id="gpu or cpu", trust_remote_code=True)))
        events = until(engine, lambda event: isinstance(event, Loaded))
        assert events.count(Loading("the GPU failed; trying again", 0.1)) == FAILURES
        assert isinstance(events[-1], Loaded)
        assert events[-1].info.load.device == "auto", "the loader was to choose"
        assert events[-1].info.notes.note.startswith("the GPU failed: CUDA error: an illegal memory access")
        for number, said in enumerate((ONCE_MORE, AGAIN)):
            engine.start()
            engine.send(Load(replace(PAIR, id="another")))
            engine.send(ask("gpu later", 3 + number))
            *_, failed = engine.events(PATIENCE_S)
            assert isinstance(failed, Failed)
            assert failed.message.endswith(f"see {log}. {said}")
        for said in (ONCE_MORE, AGAIN):
            engine.start()
            engine.send(Load(replace(PAIR, id="on two cards")))
            engine.send(ask("gpu later", 5))
            *_, failed = engine.events(PATIENCE_S)
            assert isinstance(failed, Failed)
            assert failed.message.startswith("The GPU another card failed (CUDA error: ")
            assert failed.message.endswith(said)
        assert GpuRecord.of("another card").wrong("kernels", "on two cards")
        assert GpuRecord.of("a card").wrong("kernels", "on two cards") is None
        record, known = GpuRecord.of("a card"), "CUDA error: an illegal memory access was encountered"
        assert [record.wrong("kernels", pair) for pair in ("another", "gpu or cpu", "a third")] == [known, known, None]
    finally:
        engine.close()


def test_an_app_that_ends_blames_no_check_that_runs(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "data" / "gpu.json"))
    engine, record = EngineClient(log, SCRIPTED), GpuRecord.of("a card")
    engine.start()
    try:
        engine.send(Load(replace(PAIR, id="checked")))
        until(engine, lambda event: event == Loading("checking", 0.6))
        assert record.fail("kernels", "again") == 2
        assert record.wrong("kernels") == "again", "the check did not count"
        record.drop("kernels")
    finally:
        engine.close()
    assert record.fail("kernels", "again") == 1


def test_another_pair_asked_for_meanwhile_is_loaded_as_asked(loaded: EnginePort) -> None:
    loaded.send(Load(replace(PAIR, id="gpu or cpu")))
    loaded.send(Load(replace(PAIR, id="other")))
    events = until(loaded, lambda event: isinstance(event, Loaded) and event.info.id == "other")
    notes = {event.info.id: event.info.notes.note for event in events if isinstance(event, Loaded)}
    assert notes == {"gpu or cpu": "the GPU failed: CUDA error: an illegal memory access was encountered", "other": ""}


def test_a_pair_that_cannot_be_loaded_fails_without_an_id(engine: EnginePort) -> None:
    engine.send(Load(PAIR.__class__("missing", "Missing", PAIR.target)))
    assert until(engine, over)[-1] == Failed(None, "model", "There is no such folder.")
    engine.send(ask("hello"))
    assert until(engine, over)[-1] == Failed(1, "request", "No model is loaded.")


def test_a_pair_that_cannot_be_found_leaves_the_one_before(loaded: EnginePort) -> None:
    loaded.send(Load(PAIR.__class__("missing", "Missing", PAIR.target)))
    assert isinstance(until(loaded, over)[-1], Failed)
    loaded.send(ask("hello"))
    assert isinstance(until(loaded, over)[-1], Finished)
    loaded.send(Load(PAIR))
    assert [type(event) for event in until(loaded, lambda event: isinstance(event, Loaded))] == [Loaded]


def test_a_pair_that_fails_once_there_was_room_for_it_leaves_none(loaded: EnginePort) -> None:
    loaded.send(Load(PairSpec("huge", "Huge", PAIR.target)))
    until(loaded, over)
    loaded.send(Load(PAIR))
    assert [type(event) for event in until(loaded, lambda event: isinstance(event, Loaded))] == [Loading, Loaded]


def test_a_loader_that_cannot_be_imported_is_told(log: Path) -> None:
    engine = EngineClient(log, "tests.process.no_such_module:load")
    engine.start()
    engine.send(Load(PAIR))
    failed = until(engine, over)[-1]
    engine.close()
    assert isinstance(failed, Failed)
    assert "no_such_module" in failed.message


def test_nothing_the_worker_prints_reaches_the_screen(
    loaded: EngineClient, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loaded.send(ask("noise"))
    failed = until(loaded, over)[-1]
    assert isinstance(failed, Failed)
    assert "EOFError" in failed.message
    assert capfd.readouterr() == ("", "")
    for printed in ("printed by Python", "printed by a child", "and its errors", "asks"):
        assert printed in log.read_text()
    with log.open("ab") as file:
        file.write(b"old" * 500_000)
    loaded.send(ask("noise"))
    until(loaded, over)
    assert log.stat().st_size < 500_000, "a log that grew too long begins anew with a reply"
    assert "printed by Python" in log.read_text()


def test_the_worker_ignores_an_interrupt(loaded: EnginePort, log: Path) -> None:
    os.kill(pid_of(loaded), signal.SIGINT)
    loaded.send(ask("hello"))
    assert isinstance(until(loaded, over)[-1], Finished)
    assert "KeyboardInterrupt" not in log.read_text()


def test_death_in_a_reply_is_told_once_and_a_restart_loads_the_pair_again(loaded: EnginePort, log: Path) -> None:
    loaded.send(ask("hello", 4))
    until(loaded, over)
    loaded.send(ask("endless", 5))
    until(loaded, lambda event: isinstance(event, Step))
    first = pid_of(loaded)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    failed = until(loaded, over)[-1]
    assert isinstance(failed, Failed)
    assert (failed.id, failed.kind) == (5, "died")
    assert "SIGKILL" in failed.message
    assert str(log) in failed.message
    assert not loaded.alive
    assert loaded.poll() == []
    loaded.send(ask("hello", 6))
    assert loaded.poll() == [Failed(6, "died", "The engine is not running.")]

    loaded.restart()
    assert isinstance(until(loaded, lambda event: isinstance(event, Loaded))[-1], Loaded)
    assert loaded.alive
    assert pid_of(loaded) != first
    loaded.send(ask("hello", 7))
    assert isinstance(until(loaded, over)[-1], Finished)


def test_a_request_between_death_and_its_discovery_is_told_once(loaded: EnginePort) -> None:
    os.kill(pid_of(loaded), signal.SIGKILL)
    while loaded.alive:
        pass
    loaded.send(ask("hello", 3))
    events = list(loaded.events(PATIENCE_S))
    assert [(event.id, event.kind) for event in events if isinstance(event, Failed)] == [(3, "died")]
    assert loaded.poll() == []


@pytest.mark.parametrize(
    ("said", "words"),
    [("die", "SIGSEGV"), ("exit", "exit code 7"), ("shrunk", "SIGBUS, a sign that a file of the model was changed")],
)
def test_how_the_worker_ended_is_told(loaded: EnginePort, said: str, words: str) -> None:
    loaded.send(ask(said))
    failed = until(loaded, over)[-1]
    assert isinstance(failed, Failed)
    assert words in failed.message


def test_restart_in_the_middle_of_a_reply_drops_what_is_left_of_it(loaded: EnginePort) -> None:
    loaded.send(ask("stuck"))
    until(loaded, lambda event: isinstance(event, Started))
    loaded.restart()
    events = until(loaded, lambda event: isinstance(event, Loaded))
    assert not any(isinstance(event, Failed | Step) for event in events)


def test_close_ends_a_worker_that_is_in_the_middle_of_a_step(loaded: EnginePort) -> None:
    loaded.send(ask("stuck"))
    until(loaded, lambda event: isinstance(event, Started))
    pid = pid_of(loaded)
    loaded.close()
    gone(pid, 0 if isinstance(loaded, EngineClient) else PATIENCE_S)
    loaded.close()


def test_an_engine_that_was_never_started_answers(log: Path) -> None:
    engine = EngineClient(log, SCRIPTED)
    assert not engine.alive
    engine.send(Load(PAIR))
    engine.send(Cancel(1))
    engine.send(Shutdown())
    assert engine.poll() == [Failed(None, "died", "The engine is not running.")]
    assert list(engine.events()) == []
    engine.close()


def test_a_long_request_does_not_wait_for_a_busy_worker(loaded: EnginePort) -> None:
    loaded.send(ask("stuck", 1))
    until(loaded, lambda event: isinstance(event, Started))
    os.kill(pid_of(loaded), signal.SIGSTOP)
    try:
        loaded.send(Generate(2, (Message("user", "x" * 1_000_000),)))  # a pipe holds 64 KiB
    finally:
        os.kill(pid_of(loaded), signal.SIGCONT)


def test_a_log_that_cannot_be_opened_does_not_stop_the_engine(tmp_path: Path) -> None:
    engine = EngineClient(tmp_path / "no folder" / "engine.log", SCRIPTED)
    engine.start()
    engine.send(Load(PAIR))
    assert isinstance(until(engine, lambda event: isinstance(event, Loaded | Failed))[-1], Loaded)
    engine.close()


def test_the_log_is_private_and_a_long_one_starts_anew(log: Path) -> None:
    log.write_bytes(b"old" * 500_000)
    log.chmod(0o644)
    engine = EngineClient(log, SCRIPTED)
    engine.start()
    engine.send(Load(PAIR))
    until(engine, lambda event: isinstance(event, Loaded))
    engine.close()
    assert log.read_bytes() == b""
    assert log.stat().st_mode & 0o777 == 0o600
    log.unlink()
    engine.start()
    assert log.stat().st_mode & 0o077 == 0
    engine.close()
