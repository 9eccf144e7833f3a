"""`specchat config schema`: what may stand in the configuration files, for editors that check TOML."""

import json

import click

from specchat.cli.output import Output

FILES = ("settings", "models", "theme", "personas", "presets")


@click.group()
def config() -> None:
    """Configuration files; specchat paths says where they are."""


@config.command()
@click.argument("file", type=click.Choice(FILES))
def schema(file: str) -> None:
    """Print the JSON Schema of config.toml (settings), a theme file (theme), models, personas or presets.toml."""
    from specchat.config.files import Table
    from specchat.config.models_file import ModelsFile
    from specchat.config.personas import PersonasFile
    from specchat.config.presets import PresetsFile
    from specchat.config.settings import Settings
    from specchat.config.themes import ThemeFile

    tables: dict[str, type[Table]] = {
        "settings": Settings,
        "models": ModelsFile,
        "theme": ThemeFile,
        "personas": PersonasFile,
        "presets": PresetsFile,
    }
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", **tables[file].model_json_schema()}
    Output().write(json.dumps(found, indent=2) + "\n")
