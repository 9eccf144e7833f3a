"""`specchat ask`: one question, the answer on standard output."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from specchat.attachments import read_attachment, with_attachments
from specchat.cli.exit_codes import ExitCode
from specchat.cli.figures import figures
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import DECODING_OPTIONS, PAIR_OPTIONS, Asked, with_options
from specchat.cli.output import Output, Problem, Progress, quiet_pipe, told
from specchat.cli.reply import load, take
from specchat.engine.api import Finished, Generate, Message


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
    out, progress = Output(), Progress()
    with quiet_pipe(), Interrupt() as interrupt:
        try:
            engine.start()
            load(engine, pair.spec, progress.show, interrupt)
            progress.clear()
            finished = take(engine, request, interrupt, _drop if as_json else out.write)
        finally:
            progress.clear()
            engine.close()
        if as_json:
            out.write(_as_json(finished, pair.id, request) + "\n")
        _report(finished, request.sampling.seed)
        if interrupt.asked:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _drop(text: str) -> None:
    del text


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
    Progress().line(" · ".join(figures(finished.stats, seed)))
