"""`specchat tune list`, `use` and `remove`: what was trained, on what, what it brought, and its way back."""

from collections.abc import Sequence
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
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def list_(as_json: bool, models: Path | None) -> None:
    """List what was trained or searched, the latest first."""
    from specchat.config.paths import user_paths
    from specchat.tune.registry import used_by

    found, toml = _shelved(), models or user_paths().models_file
    users = {one.id: used_by(one, toml) for one in found}
    if as_json:
        rows = [
            {**asdict(one), "folder": str(one.folder), "bytes": one.size, "used_by": users[one.id]} for one in found
        ]
        Output().write_json(rows)
        return
    lines = "".join(_line(one, bool(users[one.id])) for one in found)
    Output().write(lines or "Nothing that was trained is kept. See specchat tune --help.\n")


@click.command("use")
@click.argument("id", metavar="ID")
@click.option("--not", "without", is_flag=True, help="Give the pair what it had before, and keep the files.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def use_(id: str, without: bool, models: Path | None) -> None:
    """Let the pair of a result use it, or no longer."""
    from specchat.config.paths import user_paths
    from specchat.tune.registry import give_back, use

    found, toml = _named(id), models or user_paths().models_file
    if without:
        pairs = give_back(found, toml)
        Output().write(_restored(pairs, toml) or f"No pair in {toml} uses {found.id}.\n")
        return
    use(found, toml)
    Output().write(f'Pair "{found.pair}" in {toml} uses {found.id} when it is loaded anew.\n')


@click.command("remove")
@click.argument("id", metavar="ID")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def remove_(id: str, models: Path | None) -> None:
    """Delete a result; its pair gets back what it had before."""
    from specchat.config.paths import user_paths
    from specchat.models import words
    from specchat.tune.registry import take_away

    paths, found = user_paths(), _named(id)
    toml = models or paths.models_file
    size, pairs = take_away(found, paths.tuned, toml)
    Output().write(f"Deleted {found.folder} ({words.size(size)}).\n{_restored(pairs, toml)}")


def _restored(pairs: Sequence[str], toml: Path) -> str:
    return "".join(f'Pair "{pair}" in {toml} has what it had before.\n' for pair in pairs)


def _named(id_: str) -> "Tuned":
    """The result of that id.

    Raises:
        Problem: there is none.
    """
    found = _shelved()
    for one in found:
        if one.id == id_:
            return one
    known = f"It is one of {', '.join(one.id for one in found)}." if found else "Nothing that was trained is kept."
    raise Problem(f'Nothing trained is called "{one_line(id_, 80)}". {known}', ExitCode.USAGE)


def _shelved() -> "list[Tuned]":
    from specchat.config.paths import user_paths
    from specchat.tune.shelf import shelved

    return sorted(shelved(user_paths().tuned), key=lambda one: -one.created)


def _line(one: "Tuned", used: bool) -> str:
    """Id, date, size, data and held-out figures."""
    from specchat.models import words
    from specchat.tune.shelf import figure

    figures = ", ".join(
        f"{name.replace('_', ' ')} {figure(one.before[name])} -> {figure(value)}"
        for name, value in one.after.items()
        if name in one.before
    )
    date, data = datetime.fromtimestamp(one.created), one_line(one.data, 80)
    what = f"{one.kind} of {one.pair}{'' if used else ', not in use'}"
    return f"{one.id}  {what}  {date:%Y-%m-%d %H:%M}  {words.size(one.size)}  {data}\n  {figures}\n"
