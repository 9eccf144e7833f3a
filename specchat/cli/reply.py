"""Load a pair and take a reply from an engine, with ctrl+c as a wish to stop."""

import time
from collections.abc import Callable

import click

from specchat.cli.interrupt import Interrupt
from specchat.cli.output import Problem
from specchat.cli.transcript import ChatInMemory
from specchat.engine.events import Event, Failed, Finished, Loaded, Loading, Step
from specchat.engine.options import Span, Written
from specchat.engine.pair import PairInfo, PairSpec
from specchat.engine.port import EnginePort
from specchat.engine.requests import Cancel, Generate, Load

TICK_S = 0.2
"""How often a wish to stop is looked for while nothing arrives."""
PATIENCE_S = 5.0
"""How long a stopped reply may take to end."""


def load(
    engine: EnginePort, pair: PairSpec, show: Callable[[str, float | None], None], interrupt: Interrupt
) -> PairInfo:
    """Load `pair` into a started engine; `show` is told how far that is.

    Raises:
        Problem: the engine could not load.
        click.Abort: interrupted.
    """
    engine.send(Load(pair))
    while True:
        for event in engine.events(TICK_S):
            match event:
                case Loading():
                    show(event.what, event.fraction)
                case Loaded():
                    return event.info
                case Failed(kind="download"):
                    raise Problem.of(event.kind, f'Pair "{pair.id}" could not be downloaded: {event.message}')
                case Failed():
                    raise Problem.of(event.kind, event.message)
            if interrupt.asked:
                break
        if interrupt.asked:
            raise click.Abort


class Outlet:
    """Writes a reply as it comes: the answer with `write`, the reasoning with `think`; each ends its last line."""

    def __init__(
        self,
        write: Callable[[str], None],
        think: Callable[[str], None] = lambda _: None,
        end: Callable[[], None] | None = None,
    ) -> None:
        """`end` is called after an answer, in place of writing a line break."""
        self._write = write
        self._end = end
        self._think = think
        self._last, self._thought = "", ""
        """The last characters of both."""

    def put(self, step: Step) -> None:
        """Write what a step brought."""
        for piece in step.pieces:
            if piece.reasoning:
                self._think(piece.text)
                self._thought = piece.text[-1:] or self._thought
            else:
                self._put_answer(piece.text)

    def end(self) -> None:
        """The reply is over, or nothing more of it comes."""
        if self._last and self._end is not None:
            self._end()
        elif self._last and self._last != "\n":
            self._write("\n")
        self._end_thought()

    def _put_answer(self, text: str) -> None:
        # A model leaves empty lines between its reasoning and its answer.
        text = text.lstrip("\n") if self._thought and not self._last else text
        if text:
            if not self._last:
                self._end_thought()
            self._write(text)
            self._last = text[-1]

    def _end_thought(self) -> None:
        if self._thought and self._thought != "\n":
            self._think("\n")
            self._thought = "\n"


def answer(
    engine: EnginePort,
    request: Generate,
    interrupt: Interrupt,
    out: Outlet,
    transcript: ChatInMemory,
    pair: PairSpec,
    info: PairInfo,
) -> Finished:
    """Take the reply to the transcript's last prompt into the transcript, with what was written if it fails.

    Raises:
        Problem: the engine could not answer.
        click.Abort: the reply does not stop.
    """
    spans: list[Span] = []

    def hear(event: Event) -> None:
        if isinstance(event, Step):
            spans.extend((piece.text, piece.reasoning) for piece in event.pieces)
        transcript.heard(event)

    transcript.begun(request, pair, info)
    finished = None
    try:
        finished = _take(engine, request, interrupt, out, hear)
    finally:
        transcript.answered(finished.written if finished else Written.of(spans))
    return finished


def _take(
    engine: EnginePort,
    request: Generate,
    interrupt: Interrupt,
    out: Outlet,
    hear: Callable[[Event], None],
) -> Finished:
    """Ask a loaded engine and put the reply out as it comes; an interrupt stops it. `hear` is told every event first.

    Raises:
        Problem: the engine could not answer.
        click.Abort: the reply does not stop.
    """
    stop_by = None
    engine.send(request)
    try:
        while True:
            for event in engine.events(TICK_S):
                hear(event)
                match event:
                    case Step():
                        out.put(event)
                    case Failed():
                        raise Problem.of(event.kind, event.message)
                    case Finished():
                        return event
                if interrupt.asked and stop_by is None:
                    break
            if interrupt.asked and stop_by is None:
                engine.send(Cancel(request.id))
                stop_by = time.monotonic() + PATIENCE_S
            if stop_by is not None and time.monotonic() > stop_by:
                raise click.Abort
    finally:
        out.end()
