"""Shared by the `models` commands: the pairs, the models of this machine, and questions."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.download import can_ask
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem

if TYPE_CHECKING:
    from specchat.cli.pairs import Configured
    from specchat.config.catalog import Catalog
    from specchat.engine.fetch.source import Hub
    from specchat.engine.protocol.pair import ModelSource
    from specchat.models.library import Library


@dataclass(frozen=True)
class Here:
    """`file` is the user's models.toml, which need not exist."""

    hub: "Hub"
    configured: "Configured"
    library: "Library"
    file: Path

    @property
    def catalog(self) -> "Catalog":
        return self.configured.catalog


def here(models: Path | None) -> Here:
    """Read the configuration and look for models; `models` is the file named on the command line.

    Raises:
        ConfigError: a file is missing or wrong.
    """
    from specchat.cli.pairs import Configured
    from specchat.models.library import look

    known = Configured.read(models)
    places = known.places
    return Here(places.hub, known, look(places), models or known.paths.models_file)


def source_named(name: str, library: "Library") -> "ModelSource":
    """A path, a model that was found by its name or id, a repository, or a GGUF file of one.

    Raises:
        Problem: it is none of them.
    """
    from specchat.engine.protocol.pair import ModelSource, is_gguf
    from specchat.models.names import found_model

    path = Path(name).expanduser()
    if os.path.exists(path):
        return ModelSource(path=str(path.absolute()))
    if (found := found_model(name, library)) is not None:
        return found[1].spec.target
    if not name.startswith((".", "/", "~")):
        owner, *rest = name.split("/")
        if len(rest) == 1:
            return ModelSource(repo=name)
        if len(rest) == 2 and is_gguf(rest[1]):
            return ModelSource(repo=f"{owner}/{rest[0]}", file=rest[1])
    raise Problem(
        f'There is no "{name}" here. Give a folder, a GGUF file, a repository as OWNER/NAME, or a GGUF file of one as '
        "OWNER/NAME/FILE.gguf.",
        ExitCode.USAGE,
    )


def agreed(question: str, yes: bool) -> None:
    """Ask, and go on only with a yes.

    Raises:
        Problem: there is no terminal to ask.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if not can_ask():
        raise Problem("This asks first, and there is no terminal to ask. Add --yes to agree.", ExitCode.USAGE)
    click.confirm(question, abort=True, err=True)
