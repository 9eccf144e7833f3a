"""`specchat serve-command`: how another engine serves a pair."""

from pathlib import Path
from typing import Any

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.exit_codes import ExitCode
from specchat.cli.options import DRAFT_LENGTH, FOLDER, PAIR_OPTIONS, Named, with_options
from specchat.cli.output import Output, Problem, reports_errors
from specchat.engine.strategies import STRATEGIES
from specchat.serve_command.engines import ENGINES
from specchat.serve_command.plan import plan
from specchat.serve_command.shell import as_pair, as_shell

ELSEWHERE = "From another machine: ssh -L {port}:127.0.0.1:{port} HOST, and the address below is right there too."


@click.command("serve-command")
@click.argument("pair", metavar="PAIR", shell_complete=complete_pairs)
@click.option(
    "--engine", type=Named(list(ENGINES)), metavar="NAME", required=True, help=f"One of {', '.join(ENGINES)}."
)
@click.option("--hosts", type=click.IntRange(1, 64), default=1, show_default=True, help="Machines to run it on.")
@click.option("--gpus", type=click.IntRange(1, 64), default=1, show_default=True, help="GPUs of each machine.")
@click.option("--strategy", type=Named(list(STRATEGIES)), metavar="NAME", help="Instead of the pair's; plain for none.")
@click.option("--draft-length", type=DRAFT_LENGTH, help="Tokens drafted a step.")
@click.option("--write", type=FOLDER, metavar="FOLDER", help="Write the files there instead of showing them.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def serve_command(
    pair: str,
    engine: str,
    hosts: int,
    gpus: int,
    strategy: str | None,
    draft_length: int | None,
    write: Path | None,
    models: Path | None,
) -> None:
    """Show the commands and files with which another engine serves PAIR, with its strategy and heads.

    The [[pair]] to put into models.toml comes last.
    """
    from specchat.cli.pairs import named_pair

    chosen, one = ENGINES[engine], named_pair(pair, models)
    planned = plan(one, chosen.title, tuple(chosen.methods), strategy or one.strategy, draft_length, hosts, gpus)
    served = chosen.serve(planned)
    out = Output()
    for note in served.notes:
        out.write(f"# {note}\n")
    if write is not None and served.files:
        _write(write, served.files)
        out.write(f"# Run these in {write}, which has {', '.join(served.files)}.\n")
    elif served.files:
        for name, text in served.files.items():
            out.write(f"# {name}\n{text}\n")
    for where, command in served.commands:
        out.write(f"# {where}\n{as_shell(command)}\n")
    out.write(f"# {ELSEWHERE.format(port=served.port)}\n\n{as_pair(planned, served)}")


def _write(folder: Path, files: Any) -> None:
    for name, text in files.items():
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Problem(f"{file} cannot be written ({error.strerror}).", ExitCode.USAGE) from None
