"""A command beside a program: what it reports, how it is paused, stopped and killed, and how its end is told."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from specchat.tune import beside
from specchat.tune.beside import BesideCommand

Until = Callable[[Callable[[], object]], None]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="it takes signals")

SAYS = "import sys; print(sys.argv[1], flush=True); sys.stdin.read()"
"""Prints its argument, and ends when nobody can write to it any more."""
ENDS = "import sys; print(sys.argv[1]); sys.stderr.write(sys.argv[2]); sys.exit(int(sys.argv[3]))"
PROGRESS = json.dumps({"kind": "progress", "phase": "training", "fraction": 0.5})
RESULT = json.dumps({"kind": "result", "taken": True})


@pytest.fixture
def until(monkeypatch: pytest.MonkeyPatch) -> Until:
    """Waits until something is so of a command, looked at whenever it has read a line or ended."""
    looked = Event()
    take, follow = BesideCommand._take, BesideCommand._follow

    def taken(self: BesideCommand, report: object) -> None:
        take(self, report)
        looked.set()

    def followed(self: BesideCommand) -> None:
        follow(self)
        looked.set()

    monkeypatch.setattr(BesideCommand, "_take", taken)
    monkeypatch.setattr(BesideCommand, "_follow", followed)

    def wait(true: Callable[[], object]) -> None:
        while not true():
            assert looked.wait(60)
            looked.clear()

    return wait


def command(code: str, *arguments: str) -> BesideCommand:
    return BesideCommand(arguments, [sys.executable, "-c", code])


def test_its_progress_and_result_are_read_and_other_lines_are_not(
    until: Until,
) -> None:
    job = command(ENDS, f"no json\n[1]\n{PROGRESS}\n{RESULT}", "", "0")
    until(lambda: not job.busy)
    assert job.state == "done"
    assert job.progress["fraction"] == 0.5
    assert job.result == {"kind": "result", "taken": True}


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("Error: The disk is \x1b[31mfull.\n", "2", "The disk is ␛[31mfull."),
        ("Usage: specchat\n\nError: No such pair.\n\n", "2", "No such pair."),
        ("", "3", "The process ended by itself (exit code 3)."),
        ("", "0", "The process ended by itself (exit code 0)."),
    ],
)
def test_a_failure_is_told_in_its_own_words(until: Until, said: str, code: str, words: str) -> None:
    job = command(ENDS, PROGRESS, said, code)
    until(lambda: not job.busy)
    assert (job.state, job.error) == ("failed", words)


def test_it_is_paused_where_it_is_and_goes_on(until: Until) -> None:
    job = command(SAYS, PROGRESS)
    until(lambda: job.progress)
    job.pause(True)
    assert os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT) is not None
    ran = job.ran_s
    assert job.ran_s == ran
    job.pause(False)
    assert os.waitid(os.P_PID, job.pid, os.WCONTINUED | os.WNOWAIT) is not None
    assert job.ran_s > ran
    job.pause(True)
    job.stop()
    until(lambda: not job.busy)
    assert (job.state, job.error) == ("stopped", "")


def test_one_that_is_killed_by_others_says_so(until: Until) -> None:
    job = command(SAYS, PROGRESS)
    until(lambda: job.progress)
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: not job.busy)
    assert job.error == "The process ended by itself (signal SIGKILL)."


def test_the_program_is_this_specchat_below_others_in_priority(
    until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path))
    priority = beside._BELOW.format(paths=sys.path) + 'print(\'{"kind": "progress", "nice": %d}\' % os.nice(0))'
    job = command(priority)
    until(lambda: not job.busy)
    assert job.progress["nice"] == 19
    told = BesideCommand(("tune", "draft", "no such pair", "--chats", "--json"))
    until(lambda: not told.busy)
    assert told.state == "failed"
    assert "no such pair" in told.error
