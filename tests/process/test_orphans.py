"""The worker ends with the app, however the app ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.process.conftest import PATIENCE_S, SCRIPTED

APP = """
import sys, time
from pathlib import Path
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Started
from specchat.engine.protocol.requests import Load
from tests.process.conftest import PAIR, ask, until
engine = EngineClient(Path(sys.argv[1]), sys.argv[2])
engine.start()
engine.send(Load(PAIR))
engine.send(ask(sys.argv[3]))
until(engine, lambda event: isinstance(event, Started))
print(engine.pid, flush=True)
if sys.argv[4] == "stay":
    time.sleep(3600)
"""


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("doing", ["stuck", "endless", "native"])
@pytest.mark.parametrize("end", ["killed", "exits"])
def test_no_worker_outlives_the_app(log: Path, doing: str, end: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", APP, str(log), SCRIPTED, doing, "stay" if end == "killed" else "go"]
    app = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    assert app.stdout is not None
    worker = int(app.stdout.readline())
    if end == "killed":
        assert not _gone(worker)
        os.kill(app.pid, signal.SIGKILL)
    app.wait(PATIENCE_S)
    _await_end(worker)
    app.stdout.close()


def _await_end(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not _gone(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError("the process lives on")
        time.sleep(0.01)


WATCHED = """
import ctypes, os, sys
from specchat.engine.leash import watch
watch(0)
print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
if sys.argv[1] == "native":
    ctypes.PyDLL(None).sleep(3600)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("doing", ["native", "nothing"])
def test_where_no_signal_tells_a_process_watches_the_pipe(doing: str) -> None:
    command = [sys.executable, "-c", WATCHED, doing]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdin is not None
    assert worker.stdout is not None
    watching = int(worker.stdout.readline())
    if doing == "native":
        assert worker.poll() is None
        worker.stdin.close()
    # Nothing but the worker holds its output: the end of that is seen at once.
    assert worker.stdout.read() == ""
    assert worker.wait(PATIENCE_S) == (-signal.SIGKILL if doing == "native" else 0)
    _await_end(watching)
    worker.stdout.close()
