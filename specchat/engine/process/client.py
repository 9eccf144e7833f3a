"""The app's side of the engine process: never blocks, and restarts a dead worker."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from specchat.engine.hardware.gpu_failure import LoadAgain
from specchat.engine.process import wire
from specchat.engine.process.channel import Channel, Gone, Receiver
from specchat.engine.protocol.events import Event, Failed, Finished, Loaded, Loading
from specchat.engine.protocol.requests import Generate, Load, Request, Shutdown
from specchat.private import opener

LOADER = "specchat.engine.loading:load"
GRACE_S = 1.5
"""Seconds that `close` waits for the worker, which may write read texts to disk, before it kills it."""
_SIGNS = {
    "SIGKILL": ", often a sign that memory ran out",
    "SIGBUS": ", a sign that a file of the model was changed or cut while it was read: load the model again",
}
"""Usual causes of an end, by the signals that bring it."""
MAX_LOG_BYTES = 1 << 20
"""A longer log begins anew with the next worker or reply."""


class _Process:
    """A worker process."""

    def __init__(self, command: list[str], log: BinaryIO | int, sealed: bool, arrived: Callable[[Any], object]) -> None:
        self.popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        events, requests = self.popen.stdout, self.popen.stdin
        assert events is not None
        assert requests is not None

        def read() -> Iterator[Any]:
            with events:
                yield from wire.read(events, sealed)

        self.channel = Channel(read, requests, self.popen.wait, arrived)

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def end(self, grace: float) -> None:
        """End the process; blocks for up to `grace` seconds."""
        self.channel.end(Shutdown())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(grace)
        self.popen.kill()
        self.popen.wait()


class EngineClient(Receiver):
    """An `EnginePort` over a worker process.

    `log` receives the worker's output; None drops it. `loader` is the "module:function" that loads a pair there.
    """

    def __init__(
        self,
        log: Path | None = None,
        loader: str = LOADER,
        sealed: bool = False,
    ) -> None:
        """`sealed` leaves steps as they came."""
        super().__init__()
        self._log = log
        self._loader = loader
        self._sealed = sealed
        self._process: _Process | None = None
        self._pair: Load | None = None
        self._replies: list[int] = []
        self._unloaded: list[Request] = []
        """Unanswered loads in order, with all requests after the first of them."""

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._process.popen.pid if self._process is not None else None

    def start(self) -> None:
        """Start the worker if none runs; a dead one counts as running until its death event was read.

        On Linux the worker ends with the calling thread; see `leash`.
        """
        if self._process is not None:
            return
        log = self._open_log()
        try:
            output = log if log is not None else subprocess.DEVNULL
            self._process = _Process(self._command(log is not None), output, self._sealed, self._arrived)
        except OSError as error:
            self._put(Failed(None, "died", f"The engine process could not be started: {error}."))
        finally:
            if log is not None:
                log.close()

    def send(self, request: Request) -> None:
        if isinstance(request, Load):
            self._pair = request
        if self._process is not None:
            if isinstance(request, Load) or self._unloaded:
                self._unloaded.append(request)
            if isinstance(request, Generate):
                self._replies.append(request.id)
                self._shorten_log()
            self._process.channel.send(request)
        else:
            self._refuse(request)

    def restart(self) -> None:
        """Kill the worker, start a new one and reload the last pair; unread events are lost."""
        if self._process is not None:
            self._process.popen.kill()
        self._reset()
        self.start()
        if self._pair is not None:
            self.send(self._pair)

    def close(self) -> None:
        if self._process is not None:
            self._process.end(GRACE_S)
        self._reset()

    def _reset(self) -> None:
        self._process = None
        self._own = SimpleQueue()
        self._replies.clear()
        self._unloaded.clear()

    def _next(self, timeout: float | None) -> Event:
        """Wait up to `timeout` seconds for the next event of a running worker; raises Empty.

        Tracks unfinished replies; the end of the worker's events becomes a Failed event.
        """
        process = self._process
        if process is None:
            return self._own.get_nowait()
        event: Event = process.channel.next(timeout)
        if isinstance(event, Gone):
            event = Failed(self._replies[0] if self._replies else None, "died", self._obituary(process))
            self._reset()
        elif isinstance(event, LoadAgain):
            event = self._load_again(event)
        elif isinstance(event, Failed) and event.kind == "died":  # the worker reported why it ends
            self._reset()
        elif isinstance(event, Loaded) or (isinstance(event, Failed) and event.id is None):
            later = (i for i, request in enumerate(self._unloaded) if i and isinstance(request, Load))
            del self._unloaded[: next(later, len(self._unloaded))]
        elif isinstance(event, Finished | Failed) and event.id in self._replies:
            self._replies.remove(event.id)
        return event

    def _load_again(self, lost: LoadAgain) -> Event:
        """Let a new worker load the pair differently after a GPU failure, and repeat all requests since."""
        first, *others = self._unloaded
        assert isinstance(first, Load)
        self._process = None
        self.start()
        if self._process is None:
            return self._own.get_nowait()
        self._unloaded[0] = again = replace(first, failed=lost.failed, remembered=lost.remembered)
        for request in (again, *others):
            self._process.channel.send(request)
        return Loading(f"the GPU failed; {'trying again' if lost.remembered else 'going to the CPU'}", 0.1)

    def _obituary(self, process: _Process) -> str:
        code = process.popen.returncode
        how = f"ended with exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
                how = f"was killed by {name}{_SIGNS.get(name, '')}"
        return f"The engine process {how}" + (f"; see {self._log}." if self._log else ".")

    def _command(self, logged: bool) -> list[str]:
        # The worker imports modules from where this process does; -P keeps its current folder out of the search.
        run = "from specchat.engine.process.worker import main; main(*sys.argv[1:])"
        start = f"import sys; sys.path[:] = {sys.path!r}; {run}"
        log = str(self._log) if logged else "the engine's log, which could not be opened"
        return [sys.executable, "-P", "-c", start, self._loader, log]

    def _open_log(self) -> BinaryIO | None:
        if self._log is None:
            return None
        try:
            self._shorten_log()
            return open(self._log, "ab", opener=opener)
        except OSError:
            return None

    def _shorten_log(self) -> None:
        """Empty a log that is too long; a running worker appends to it."""
        with contextlib.suppress(OSError):
            if self._log is not None and self._log.stat().st_size > MAX_LOG_BYTES:
                os.truncate(self._log, 0)
