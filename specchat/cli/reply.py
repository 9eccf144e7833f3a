"""Load a pair and take a reply from an engine, with ctrl+c as a wish to stop."""

import time
from collections.abc import Callable

import click

from specchat.cli.interrupt import Interrupt
from specchat.cli.output import Problem
from specchat.cli.transcript import Transcript
from specchat.engine.api import Cancel, Event, Failed, Finished, Generate, Load, Loaded, Loading, Step
from specchat.engine.pair import PairInfo, PairSpec
from specchat.engine.port import EnginePort

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


def answer(
    engine: EnginePort,
    request: Generate,
    interrupt: Interrupt,
    write: Callable[[str], None],
    transcript: Transcript,
    pair: PairSpec,
    info: PairInfo,
) -> Finished:
    """`take` the reply to the transcript's last prompt into the transcript, with what was written if it fails.

    Raises:
        Problem: the engine could not answer.
        click.Abort: the reply does not stop.
    """
    written: list[str] = []

    def note(text: str) -> None:
        write(text)
        written.append(text)

    transcript.begun(request, pair, info)
    finished = None
    try:
        finished = take(engine, request, interrupt, note, transcript.heard)
    finally:
        transcript.answered(finished.text if finished else "".join(written), finished)
    return finished


def take(
    engine: EnginePort,
    request: Generate,
    interrupt: Interrupt,
    write: Callable[[str], None],
    hear: Callable[[Event], None] = lambda _: None,
) -> Finished:
    """Ask a loaded engine and `write` the reply as it comes, its last line ended; an interrupt stops it.

    `hear` is told every event first.

    Raises:
        Problem: the engine could not answer.
        click.Abort: the reply does not stop.
    """
    last = "\n"
    stop_by = None
    engine.send(request)
    try:
        while True:
            for event in engine.events(TICK_S):
                hear(event)
                match event:
                    case Step() if text := "".join(piece.text for piece in event.pieces):
                        write(text)
                        last = text[-1]
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
        if last != "\n":
            write("\n")
