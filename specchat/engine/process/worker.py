"""The engine process: takes requests from standard input, runs them, and writes events to standard output.

A few replies are written in turns (`turns.py`); further ones, and loads, wait until some or all have ended. Cancel and
Change reach a reply between its steps. A Count needs the tokenizer alone: a thread answers it then, unless a pair is to
be loaded first. While no request waits, saved chats enter the cross-chat n-gram cache and read texts go to disk. When
the app goes away or sends Shutdown, the process ends at once, even during a step; an idle one writes read texts first.
A GPU error leaves the process's CUDA context unusable, so it reports the error and ends. If that happens while a pair
loads that may run elsewhere, the client lets a new process load it there.
"""

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Collection, Iterator
from io import TextIOWrapper
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import BinaryIO, NoReturn

from specchat.engine import leash
from specchat.engine.cpu import compiled
from specchat.engine.errors import EngineError, ErrorKind
from specchat.engine.hardware import gpu_failure, out_of_memory
from specchat.engine.hardware.gpu_record import FAILURES, GpuRecord
from specchat.engine.process import wire
from specchat.engine.process.held_pair import HeldPair, WorkerSession
from specchat.engine.process.mailbox import Mailbox, ReplyControl
from specchat.engine.process.turns import ReplyTurns
from specchat.engine.protocol.events import Event, Failed, Finished, Loading, Step
from specchat.engine.protocol.requests import (
    Cancel,
    Change,
    Count,
    Forget,
    ForgetRead,
    Generate,
    Load,
    Remember,
    Request,
    Shutdown,
)

Queued = Load | Generate | Count | Remember | Forget | ForgetRead | Shutdown
"""Requests that wait their turn."""
REST_S = 1.0
"""Seconds without a request after which read texts are written to disk."""


class EventWriter:
    """Writes events to a stream, from any thread; exits if nobody reads."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._writing = stream, Lock()

    def __call__(self, event: Event | gpu_failure.LoadAgain) -> None:
        try:
            with self._writing:
                wire.write(self._stream, event, event.id if isinstance(event, Step) else wire.NO_REPLY)
        except OSError:
            _leave()


class Worker:
    """Runs requests on a session from `loader`, a "module:function". Error messages name `log`."""

    def __init__(self, requests: BinaryIO, events: BinaryIO, loader: str, log: str) -> None:
        self._requests, self._emit = requests, EventWriter(events)
        self._log = log
        self._inbox: SimpleQueue[Queued] = SimpleQueue()
        self._counts: SimpleQueue[Count] = SimpleQueue()
        self._mailbox = Mailbox()
        self._turns = ReplyTurns(self._back_s, cancelled=self._mailbox.cancelled, together=self._together)
        self._counting = Lock()
        self._loads = 0
        """Loads that have not ended."""
        self._pair = HeldPair(loader, self._emit)
        self._waiting = False
        """True while there is no request to work on."""

    def run(self) -> None:
        """Serve until the requests end; does not return."""
        self._emit(Loading("starting the engine"))
        Thread(target=self._read, name="requests", daemon=True).start()
        Thread(target=self._count, name="counts", daemon=True).start()
        compiled.share_compilation()  # needs no torch
        with contextlib.suppress(Exception):  # reported when a pair is loaded
            self._pair.find_loader()
        waiting = deque[Queued]()
        while True:
            if not (self._turns or waiting):
                waiting.append(self._next())
                self._waiting = False
            while not self._inbox.empty():
                waiting.append(self._inbox.get())
            while waiting and self._may_begin(waiting[0]):
                request = waiting.popleft()
                if isinstance(request, Generate):
                    self._turns.add(request, self._reply(request))
                else:
                    self._handle(request)
            if self._turns:
                self._handle(self._turns.first)

    def _next(self) -> Queued:
        """Wait for the next request; meanwhile fill the cross-chat n-gram cache, then write read texts to disk.

        Both only save time: after an error they continue once a request has been served.
        """
        self._waiting = True
        try:
            while self._inbox.empty() and self._pair.session is not None and self._pair.session.cross_chat.digest():
                pass
            if self._pair.session is not None:
                with contextlib.suppress(Empty):
                    return self._inbox.get(timeout=REST_S)
                self._pair.session.save_read(lambda: not self._inbox.empty())
        except Exception:
            traceback.print_exc()
        return self._inbox.get()

    def _back_s(self) -> float:
        return self._pair.session.holder.back_s if self._pair.session is not None else 0.0

    def _together(self) -> Collection[int]:
        return self._pair.session.holder.together if self._pair.session is not None else ()

    def _may_begin(self, request: Queued) -> bool:
        match request:
            case Generate():
                apart = self._pair.session is None or not self._pair.session.takes_turns
                return not (self._turns and apart) and self._turns.may_begin(request)
            case Load():
                return not self._turns
            case _:
                return True

    def _read(self) -> None:
        for request in wire.read(self._requests):
            self._route(request)
        _leave()

    def _route(self, request: Request) -> None:
        match request:
            case Cancel() | Change():
                self._mailbox.put(request)
            case Shutdown() if not self._waiting:
                _leave()
            case Generate():
                self._mailbox.open(request.id)
                self._inbox.put(request)
            case Load():
                with self._counting:
                    self._loads += 1
                self._inbox.put(request)
            case Count() if not self._loads:
                self._counts.put(request)
            case Count() | Remember() | Forget() | ForgetRead() | Shutdown():
                self._inbox.put(request)

    def _count(self) -> None:
        while True:
            self._handle(self._counts.get())

    def _handle(self, request: Queued) -> None:
        """Run a request; of a reply one event."""
        if isinstance(request, Shutdown):
            self._pair.save_read()
            _leave()
        if isinstance(request, Remember | Forget | ForgetRead):
            self._remember(request)
            return
        reply = None if isinstance(request, Load) else request.id
        try:
            match request:
                case Load():
                    try:
                        self._pair.load(request)
                    finally:
                        with self._counting:
                            self._loads -= 1
                case Generate():
                    if (event := self._turns.next()) is not None:
                        self._emit(event)
                case Count():
                    self._emit(self._loaded().count(request))
        except gpu_failure.GpuLost as error:
            remembered = GpuRecord.failed(error.failed) > 0
            if error.bound and not remembered:
                self._emit(Failed(None, error.kind, error.message))
            else:
                self._emit(gpu_failure.LoadAgain(error.failed, remembered))
            os._exit(gpu_failure.EXIT_CODE)
        except EngineError as error:
            self._emit(Failed(reply, error.kind, error.message))
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            if gpu_failure.is_gpu_failure(error):
                # A count belongs to no reply, and its sender does not expect a death.
                written = request.id if isinstance(request, Generate) else None
                words = gpu_failure.describe(error, request, self._log)
                if failures := GpuRecord.failed(gpu_failure.first_line(error)):
                    words += f" {gpu_failure.AGAIN if failures >= FAILURES else gpu_failure.ONCE_MORE}"
                self._emit(Failed(written, "died", words))
                os._exit(gpu_failure.EXIT_CODE)
            self._emit(Failed(reply, *self._describe(error, request)))

    def _reply(self, request: Generate) -> Iterator[Event]:
        try:
            session = self._loaded()
            if self._mailbox.cancelled(request.id):
                yield Finished.unbegun(request)
                return
            yield from session.generate(request, ReplyControl(self._mailbox, request.id))
        finally:
            self._mailbox.close(request.id)

    def _remember(self, request: Remember | Forget | ForgetRead) -> None:
        """Update what is known of other texts, if a pair is loaded."""
        if (session := self._pair.session) is None:
            return
        match request:
            case Remember():
                session.cross_chat.remember(request)
            case Forget():
                session.cross_chat.forget(request)
                if request.chat is not None:
                    session.forget_read(request.chat)
            case ForgetRead():
                session.forget_read()

    def _loaded(self) -> WorkerSession:
        if self._pair.session is None:
            raise EngineError("request", "No model is loaded.")
        return self._pair.session

    def _describe(self, error: Exception, request: Load | Generate | Count) -> tuple[ErrorKind, str]:
        if out_of_memory.ran_out(error):
            pair = request.pair if isinstance(request, Load) else self._pair.spec
            loaded = self._pair.session if not isinstance(request, Load) else None
            context = loaded.info.context if loaded else pair.context if pair else None
            return "memory", out_of_memory.describe(request, pair, context)
        first = f"{type(error).__name__}: {gpu_failure.first_line(error)}"
        return "internal", f"The engine met an error it did not expect ({first}); see {self._log}."


def _leave() -> NoReturn:
    """Exit at once."""
    GpuRecord.leave()
    os._exit(0)


def main(loader: str, log: str) -> None:
    """Run the worker on this process's standard streams; printed output goes to standard error, the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    requests, events = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    leash.hold(requests.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the process ends without flushing
    logging.basicConfig(level=logging.INFO)
    Worker(requests, events, loader, log).run()
