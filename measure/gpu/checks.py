"""A module's checks as a command: rows of figures go into a folder; a wrong result is a sentence and exit code 1."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

Check = Callable[[Path], Sequence[dict[str, Any]]]
"""Receives the folder and returns rows of figures.

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


def write(out: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write `name`.md and `name`.json, and print; a table for each run of rows with the same columns."""
    lines: list[str] = []
    columns: list[str] = []
    for row in rows:
        if list(row) != columns:
            columns = list(row)
            lines += ["", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines.append("| " + " | ".join(_shown(row[column]) for column in columns) + " |")
    text = "\n".join(lines).lstrip("\n") + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    (out / f"{name}.json").write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf-8")
    print(text)


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace("|", "\\|").replace("\n", " ")
