"""Downloads on the command line, after a question: the models that a pair lacks, and those that are pulled."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.output import Problem, ProgressLine
from specchat.engine.errors import EngineError

if TYPE_CHECKING:
    from specchat.config.catalog import Pair
    from specchat.engine.protocol.pair import ModelSource
    from specchat.models.pull import Order


def ready(pair: "Pair", models: Path | None) -> "Pair":
    """`pair`, once this version can run it and its models are here; on a terminal missing ones are offered.

    `models` is the file named on the command line.

    Raises:
        ConfigError: it cannot be run, with the reason.
        Problem: its models are not here, and there is no terminal to ask or the answer is no; or interrupted.
        EngineError: "download": why it failed.
    """
    from specchat.cli.pairs import runnable

    if any(source.repo for source in runnable(pair).spec.sources):
        from specchat.engine.fetch.cached import absent
        from specchat.engine.fetch.source import usual_hub

        if missing := absent(usual_hub(), pair.spec.sources):
            _offer(pair, missing, models)
    return pair


def can_ask() -> bool:
    """True if a question is seen and can be answered."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask_for(ordered: "Order", lack: str = "") -> None:
    """Say what `ordered` takes, and what this installation needs to run it (`lack`)."""
    from specchat.models import words

    for sentence in words.order(ordered, lack):
        click.echo(sentence, err=True)


def fetch(ordered: "Order") -> tuple[Path, ...]:
    """Fetch with a line of progress, and give the folder of each part; ctrl+c ends it with what to do next.

    Raises:
        Problem: interrupted.
        EngineError: "download": why it failed. What was fetched is kept.
    """
    from specchat.engine.fetch.answer import Cancelled
    from specchat.models import words
    from specchat.models.pull import Pull

    line = ProgressLine()
    running = Pull(ordered, lambda now: line.show(words.progress(now), now.fraction))
    with Interrupt() as interrupt:
        interrupt.then(running.cancel)
        try:
            return running.run()
        except Cancelled:
            raise Problem("Stopped. The same command goes on where it was.", ExitCode.INTERRUPTED) from None
        finally:
            line.clear()


def _offer(pair: "Pair", missing: "list[ModelSource]", models: Path | None) -> None:
    what = " and ".join(source.label for source in missing)
    be, them = ("are", "them") if len(missing) > 1 else ("is", "it")
    file = f"--models {shlex.quote(str(models))} " if models and "SPECCHAT_MODELS_FILE" not in os.environ else ""
    command = f"specchat models pull {file}{pair.id}"
    if not can_ask():
        raise Problem(
            f'{what} of pair "{pair.id}" {be} not here, and nothing is downloaded unasked. This downloads {them}: '
            f"{command} --yes",
            ExitCode.DOWNLOAD,
        )
    from specchat.engine.fetch.source import usual_hub
    from specchat.models.machine import missing_packages, unable
    from specchat.models.pull import order

    try:
        ordered = order(usual_hub(), missing)
    except EngineError as error:
        raise Problem.of(error.kind, f'{what} of pair "{pair.id}" {be} not here: {error.message}') from None
    if ordered.missing:
        ask_for(ordered, unable(pair.spec, missing_packages()))
        if not click.confirm("Download it?", err=True):
            raise Problem(f"Nothing was downloaded. {command} does it later.", ExitCode.DOWNLOAD)
    fetch(ordered)
    ProgressLine().line(f"{what} {be} here.")
