"""The time that a thread waited for a processor, as Linux tells it."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from threading import Thread
from time import perf_counter, thread_time

import pytest

from specchat.engine.decoding.host import SCHEDULED, Scheduled, Waiting

LOOP = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\nprint(flush=True)\nwhile True: pass"
WAITED_MS, LONGEST_S = 60.0, 60.0
APART_S = 0.02
"""What the clocks may differ by: a host may hold the whole machine between two readings."""


def read(scheduled: Scheduled, waiting: Waiting) -> tuple[float, float, float, float]:
    """Milliseconds waited, and seconds by the clock, of running and without waits, all of one turn on the core."""
    while True:
        waited_ms = scheduled.waited_ms()
        found = waited_ms, perf_counter(), thread_time(), waiting.clock()
        if scheduled.waited_ms() == waited_ms:
            return found


@pytest.mark.skipif(not SCHEDULED.exists(), reason="this system does not tell how long a thread waited")
def test_a_thread_that_shares_its_core_waits_for_what_it_did_not_run() -> None:
    from os import sched_getaffinity, sched_setaffinity

    found = list[float]()
    core = min(sched_getaffinity(0))

    def share() -> None:
        sched_setaffinity(0, [core])
        waiting, scheduled = Waiting(), Scheduled(SCHEDULED)
        before = read(scheduled, waiting)
        while scheduled.waited_ms() < before[0] + WAITED_MS and perf_counter() < before[1] + LONGEST_S:
            pass
        found.extend(late - early for early, late in zip(before, read(scheduled, waiting), strict=True))

    with subprocess.Popen([sys.executable, "-c", LOOP, str(core)], stdout=subprocess.PIPE) as loop:
        assert loop.stdout is not None
        loop.stdout.readline()
        thread = Thread(target=share)
        thread.start()
        thread.join()
        loop.kill()
    waited_ms, passed, ran, clock = found
    assert waited_ms >= WAITED_MS
    # A host may hold the whole machine meanwhile, which is neither.
    assert waited_ms / 1e3 <= passed - ran + APART_S
    assert clock == pytest.approx(passed - waited_ms / 1e3, abs=APART_S)


@pytest.mark.parametrize("text", [None, "", "words", "12", "12 many 3"])
def test_a_system_that_does_not_tell_leaves_the_clock_as_it_is(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "schedstat"
    if text is not None:
        path.write_text(text)
    assert Scheduled(path).waited_ms() == 0.0
    waiting, before = Waiting(path), perf_counter()
    assert before <= waiting.clock() <= perf_counter()


def test_nanoseconds_are_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "schedstat"
    path.write_text("900 2500000 7\n")
    scheduled = Scheduled(path)
    assert scheduled.waited_ms() == 2.5
    path.write_text("901 9000000 8\n")
    assert scheduled.waited_ms() == 9.0


def test_each_thread_is_told_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.engine.decoding.host.perf_counter", lambda: 100.0)
    path = tmp_path / "schedstat"
    path.write_text("1 1000000000 1")
    waiting = Waiting(path)
    told = [waiting.clock()]
    path.unlink()
    path.write_text("1 8000000000 1")
    other = Thread(target=lambda: told.append(waiting.clock()))
    other.start()
    other.join()
    assert told == [99.0, 92.0]
    assert waiting.clock() == 99.0


def test_the_clock_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread loses its processor between the two readings that make the time."""
    seconds, waited, told = 0.0, 0.0, 0

    def now() -> float:
        nonlocal seconds, waited, told
        seconds, told = seconds + 0.001, told + 1
        read = seconds
        if told % 3 == 0:
            seconds, waited = seconds + 0.050, waited + 50.0
        return read

    waiting = Waiting()
    monkeypatch.setattr("specchat.engine.decoding.host.perf_counter", now)
    monkeypatch.setattr(Scheduled, "waited_ms", lambda _: waited)
    times = [waiting.clock() for _ in range(20)]
    assert all(0 < late - early < 0.01 for early, late in pairwise(times))
