"""A command of specchat that works beside a program: a process of its own at low priority, followed by JSON lines."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import IO, Any, Literal

from specchat.clean import one_line

State = Literal["running", "stopping", "done", "stopped", "failed"]
PAUSES = hasattr(signal, "SIGSTOP")
"""True where processes can be stopped and go on."""
LONGEST = 1 << 20
"""Characters of a line."""
LAST_WORDS_S = 10.0
"""Seconds that a process's last words are waited for: another that it started may keep its errors open."""
_PREFIX = "Error: "
_BELOW = "import os, sys; hasattr(os, 'nice') and os.nice(19); sys.path[:] = {paths!r}; "
_HELD = "from specchat.engine.leash import hold; hold(0); "
_RUN = "from specchat.cli import main; sys.argv[:] = ['specchat', *sys.argv[1:]]; main()"


def program() -> list[str]:
    """The beginning of a command line that runs this very specchat, and ends with the process that started it."""
    paths = [os.path.abspath(path) for path in sys.path]
    return [sys.executable, "-P", "-c", _BELOW.format(paths=paths) + _HELD + _RUN]


class BesideCommand:
    """A command with its latest report. A thread reads; ask for `state` now and then.

    Attributes:
        progress: fields of the latest line about progress.
        result: fields of the last line, once it is `done`.
        error: a sentence, once it has `failed`.
        ran_s: seconds for which it was not paused; `phase_s` those since the phase of its progress began.
    """

    def __init__(self, arguments: Sequence[str], start: Sequence[str] | None = None) -> None:
        """Run `specchat` with `arguments`; `start` replaces `program()`.

        Call this in a thread that lasts: on Linux the process ends with it.

        Raises:
            OSError: no process can be started.
        """
        low = getattr(subprocess, "IDLE_PRIORITY_CLASS", 0)
        self._process = subprocess.Popen(
            [*(start or program()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            creationflags=low,
        )
        self.progress: Mapping[str, Any] = {}
        self.result: Mapping[str, Any] | None = None
        self.error = ""
        self.paused = False
        self._state: State = "running"
        self._stopped = False
        self._begun = monotonic()
        self._paused_at = self._paused_s = 0.0
        self._phase_at = 0.0
        Thread(target=self._follow, name="command beside", daemon=True).start()

    @property
    def state(self) -> State:
        return "stopping" if self._state == "running" and self._stopped else self._state

    @property
    def busy(self) -> bool:
        return self._state == "running"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ran_s(self) -> float:
        now = self._paused_at if self.paused else monotonic()
        return now - self._begun - self._paused_s

    @property
    def phase_s(self) -> float:
        return self.ran_s - self._phase_at

    def pause(self, paused: bool) -> None:
        """Stop the process where it is, or let it go on."""
        if not PAUSES or paused == self.paused or not self.busy:
            return
        now = monotonic()
        if paused:
            self._paused_at = now
        else:
            self._paused_s += now - self._paused_at
        self.paused = paused
        self._signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to end, with what is done so far kept."""
        self._stopped = True
        self.pause(False)
        self._signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._stopped = True
        with suppress(OSError):
            self._process.kill()

    def _signal(self, number: int) -> None:
        with suppress(OSError):
            self._process.send_signal(number)

    def _follow(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        said: list[str] = []
        reading = Thread(target=_last_line, args=(self._process.stderr, said), daemon=True)
        reading.start()
        while line := self._process.stdout.readline(LONGEST):
            with suppress(ValueError, RecursionError):
                self._take(json.loads(line))
        code = self._process.wait()
        reading.join(LAST_WORDS_S)
        if code == 0 and self.result is not None:
            self._state = "done"
        elif self._stopped:
            self._state = "stopped"
        else:
            words = said[-1].removeprefix(_PREFIX) if said and code > 0 else ""
            self.error = words or f"The process ended by itself ({_how(code)})."
            self._state = "failed"

    def _take(self, report: Any) -> None:
        kind = report.get("kind") if isinstance(report, dict) else None
        if kind == "progress":
            if report.get("phase") != self.progress.get("phase"):
                self._phase_at = self.ran_s
            self.progress = report
        elif kind == "result":
            self.result = report


def _last_line(stream: IO[str], said: list[str]) -> None:
    """Keep the last line of a stream that says something."""
    while line := stream.readline(LONGEST):
        if text := one_line(line.strip(), 1000):
            said[:] = [text]


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
