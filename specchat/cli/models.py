"""`specchat models`: pairs and the models on this machine, and commands about them."""

from pathlib import Path

import click

from specchat.cli.models_about import JSON, find, list_models, show
from specchat.cli.models_changes import add, pull, rm
from specchat.cli.options import PAIR_OPTIONS, Passing, with_options
from specchat.cli.output import reports_errors


@click.group(cls=Passing, invoke_without_command=True)
@with_options(PAIR_OPTIONS[:1])
@JSON
@click.pass_context
@reports_errors
def models(ctx: click.Context, /, models: Path | None, as_json: bool) -> None:
    """List pairs and the models on this machine: size, where they fit, strategies, licence.

    With a command: list, add, download, delete, show or find models.
    """
    if ctx.invoked_subcommand is None:
        list_models(models, as_json)


@models.command("list")
@with_options(PAIR_OPTIONS[:1])
@JSON
@reports_errors
def list_(models: Path | None, as_json: bool) -> None:
    """List pairs and the models on this machine, as specchat models does."""
    list_models(models, as_json)


for command in (add, pull, rm, show, find):
    models.add_command(command)
