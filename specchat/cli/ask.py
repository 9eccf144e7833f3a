"""`specchat ask`: one question, the answer on standard output."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from specchat.attachments import read_attachment, with_attachments
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import DECODING_OPTIONS, PAIR_OPTIONS, Asked, with_options
from specchat.cli.output import Output, Problem, Progress, quiet_pipe, told
from specchat.engine.api import Cancel, Failed, Finished, Generate, Load, Loaded, Loading, Message, PairSpec, Step
from specchat.engine.port import EnginePort

TICK_S = 0.2
"""How often a wish to stop is looked for while nothing arrives."""
PATIENCE_S = 5.0
"""How long a stopped reply may take to end."""


@click.command()
@click.argument("text", nargs=-1)
@with_options(PAIR_OPTIONS, DECODING_OPTIONS)
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="Send this text file along; may be given again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with text, seed and figures.")
@told
def ask(text: tuple[str, ...], files: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Answer one question.

    What is piped in is added to TEXT, and so is each FILE, in a fence headed by its name. The answer goes to standard
    output as it is written; figures go to standard error if that is a terminal.
    """
    question = _question(text, files)
    from specchat.cli.prepare import keeps_state, prepare, runnable
    from specchat.engine.client import EngineClient

    prepared = prepare(Asked.of(options))
    pair = runnable(prepared.pair)
    system = (Message("system", prepared.system),) if prepared.system else ()
    request = Generate(
        id=1,
        messages=(*system, Message("user", question)),
        sampling=prepared.seeded_sampling(),
        limits=prepared.limits,
        speculation=prepared.speculation(),
    )
    engine = EngineClient(prepared.paths.engine_log if keeps_state(prepared.paths) else None)
    with quiet_pipe(), Interrupt() as interrupt:
        answer = Answer(Output(), as_json)
        try:
            finished = answer.take(engine, pair.spec, request, interrupt)
        finally:
            engine.close()
            answer.end()
        if as_json:
            answer.out.write(_as_json(finished, pair.id, request) + "\n")
        _report(finished, request.sampling.seed)
        if interrupt.asked:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)


class Answer:
    """Writes a reply as it comes."""

    def __init__(self, out: Output, silent: bool) -> None:
        self.out = out
        self._silent = silent
        self._last = "\n"
        self._loaded = False
        self._progress = Progress()

    def take(self, engine: EnginePort, pair: PairSpec, request: Generate, interrupt: Interrupt) -> Finished:
        """Load the pair and write its reply. An interrupt stops the reply; while loading, everything.

        Raises:
            Problem: the engine could not load or answer.
            click.Abort: interrupted while loading, or the reply does not stop.
        """
        engine.start()
        engine.send(Load(pair))
        engine.send(request)
        stop_by = None
        while True:
            for event in engine.events(TICK_S):
                match event:
                    case Loading():
                        self._progress.show(event.what, event.fraction)
                    case Loaded():
                        self._loaded = True
                        self._progress.clear()
                    case Step():
                        self._write("".join(piece.text for piece in event.pieces))
                    case Failed():
                        self._progress.clear()
                        raise Problem.of(event.kind, event.message)
                    case Finished():
                        return event
                if interrupt.asked and stop_by is None:
                    break
            if interrupt.asked and stop_by is None:
                if not self._loaded:
                    self._progress.clear()
                    raise click.Abort
                engine.send(Cancel(request.id))
                stop_by = time.monotonic() + PATIENCE_S
            if stop_by is not None and time.monotonic() > stop_by:
                raise click.Abort

    def end(self) -> None:
        """Close the last line."""
        if self._last != "\n":
            self._write("\n")

    def _write(self, text: str) -> None:
        if text and not self._silent:
            self.out.write(text)
            self._last = text[-1]


def _question(text: tuple[str, ...], files: tuple[Path, ...]) -> str:
    attached = [read_attachment(path) for path in files]
    piped = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        try:
            piped = sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
        except UnicodeDecodeError as error:
            raise Problem(
                f"Standard input is not UTF-8 text (byte {error.start}). Convert it first, for example with iconv.",
                ExitCode.USAGE,
            ) from None
    asked = "\n\n".join(part for part in (" ".join(text), piped) if part.strip())
    question = with_attachments(asked, attached)
    if not question:
        raise click.UsageError('Nothing was asked. Give a text, as in: specchat ask "Why is the sky blue?"')
    return question


def _as_json(finished: Finished, pair: str, request: Generate) -> str:
    answer = {
        "text": finished.text,
        "token_ids": finished.token_ids,
        "finish_reason": finished.reason,
        "pair": pair,
        "strategy": request.speculation.strategy,
        "seed": request.sampling.seed,
        "stats": asdict(finished.stats),
    }
    return json.dumps(answer)


def _report(finished: Finished, seed: int) -> None:
    """Figures for people, and a warning that nobody should miss."""
    if finished.reason == "context":
        click.echo("The context is full: the reply ends here.", err=True)
    stats = finished.stats
    parts = [
        f"{stats.tokens_per_second:.0f} tok/s",
        f"{stats.speedup_vs_plain:.1f}x plain" if stats.speedup_vs_plain is not None else "",
        f"{stats.completion_tokens} tokens",
        f"AL {stats.mean_acceptance_length:.1f}" if stats.num_spec_steps else "",
        f"first token {stats.ttft_ms / 1e3:.2f} s",
        f"seed {seed}",
    ]
    Progress().line(" · ".join(filter(None, parts)))
