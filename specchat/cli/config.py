"""`specchat config schema`: what may stand in the configuration files, for editors that check TOML."""

from typing import get_args

import click

from specchat.cli.output import Output
from specchat.config.kinds import Kind


@click.group()
def config() -> None:
    """Configuration files; specchat paths says where they are."""


@config.command()
@click.argument("file", type=click.Choice(get_args(Kind)))
def schema(file: Kind) -> None:
    """Print the JSON Schema of config.toml (settings), a theme file (theme), models, personas or presets.toml."""
    from specchat.config.tables import FILES

    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", **FILES[file].model_json_schema()}
    Output().write_json(found)
