"""`specchat tune list` and `remove`: what was trained, on what, what it brought, and its way back."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.clean import one_line
from specchat.cli.exit_codes import ExitCode
from specchat.cli.options import PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, reports_errors

if TYPE_CHECKING:
    from specchat.tune.shelf import Tuned


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@reports_errors
def list_(as_json: bool) -> None:
    """List trained drafts, the latest first."""
    found = _shelved()
    if as_json:
        rows = [{**asdict(one), "folder": str(one.folder), "bytes": one.size} for one in found]
        Output().write(json.dumps(rows, indent=2) + "\n")
        return
    Output().write("".join(_line(one) for one in found) or "Nothing was trained yet. See specchat tune draft --help.\n")


@click.command("remove")
@click.argument("id", metavar="ID")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def remove_(id: str, models: Path | None) -> None:
    """Delete a trained draft; its pair gets the draft before back."""
    from specchat.config.catalog import load_catalog
    from specchat.config.paths import user_paths
    from specchat.models.declare import set_draft
    from specchat.tune.shelf import remove

    found = next((one for one in _shelved() if one.id == id), None)
    if found is None:
        known = ", ".join(one.id for one in _shelved()) or "none"
        raise Problem(f'Nothing trained is called "{one_line(id, 80)}"; there are: {known}.', ExitCode.USAGE)
    toml = models or user_paths().models_file
    words = ""
    if found.replaced is not None and toml.exists():
        for pair in load_catalog(toml).pairs:
            draft = pair.spec.draft
            if draft is not None and draft.path and Path(draft.path) == found.folder:
                set_draft(toml, pair.id, found.replaced)
                words = f' Pair "{pair.id}" in {toml} has its draft of before back.'
    size = remove(found)
    Output().write(f"Deleted {found.folder} ({size / 1e6:,.0f} MB).{words}\n")


def _shelved() -> "list[Tuned]":
    from specchat.config.paths import user_paths
    from specchat.tune.shelf import shelved

    return sorted(shelved(user_paths().tuned), key=lambda one: -one.created)


def _line(one: "Tuned") -> str:
    """Id, date, size, data and held-out figures."""
    figures = ", ".join(
        f"{name.replace('_', ' ')} {_figure(one.before[name])} -> {_figure(value)}"
        for name, value in one.after.items()
        if name in one.before
    )
    date = datetime.fromtimestamp(one.created)
    data = one_line(one.data, 80)
    return f"{one.id}  {one.kind} of {one.pair}  {date:%Y-%m-%d %H:%M}  {one.size / 1e6:,.0f} MB  {data}\n  {figures}\n"


def _figure(value: float) -> str:
    return f"{value:.0%}" if value <= 1 else f"{value:,.0f}"
