"""A module's checks as a command: rows go into a folder, a wrong result is a sentence and code 1."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from measure.gpu.tables import write

Check = Callable[[Path], Sequence[dict[str, Any]]]
"""Gets the folder and returns rows of figures.

Raises:
    AssertionError: a wrong result.
"""


def command(checks: Mapping[str, Check]) -> click.Command:
    """`python -m measure.gpu.MODULE CHECK --out FOLDER`."""

    @click.command()
    @click.argument("check", type=click.Choice(list(checks)))
    @click.option("--out", type=click.Path(path_type=Path), required=True)
    def main(check: str, out: Path) -> None:
        try:
            write(out, check, checks[check](out))
        except AssertionError as error:
            sys.exit(f"wrong: {error}")

    return main
