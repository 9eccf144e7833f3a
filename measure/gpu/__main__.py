"""The first hour on a GPU as one command, in parts of at most nine minutes.

    python -m measure.gpu --out FOLDER [--list] [--part NAME]

Runs the parts in order, each in a process of its own, and stops at the first that does not pass, with what is needed to
mend it. Run again it goes on there. FOLDER gets `summary.md`, `summary.json`, and a folder a part with its output,
tables and profiles.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from measure.gpu.parts import PARTS
from measure.gpu.record import Part, Record, run_all
from specchat.cli.exit_codes import ExitCode

MACHINE = (sys.executable, "-m", "measure.gpu.machine")


class NoGpu(click.ClickException):
    """There is none that can be used, with the reason."""

    exit_code = ExitCode.UNUSABLE


def machine() -> dict[str, str]:
    """The versions and the GPU at hand.

    Raises:
        NoGpu: there is none.
    """
    # Not in this process: a CUDA context would stay there, beside those of the parts.
    asked = subprocess.run(MACHINE, capture_output=True, text=True, check=False)
    lines = asked.stdout.strip().splitlines()
    found: dict[str, str] = json.loads(lines[-1]) if lines else {"none": asked.stderr.strip()[-300:]}
    if "none" in found:
        raise NoGpu(f"The parts need a CUDA GPU: {found['none']}.")
    return found


def _part(_: click.Context, __: click.Parameter, name: str | None) -> Part | None:
    if name is None:
        return None
    found = next((part for part in PARTS if part.name == name), None)
    if found is None:
        raise click.BadParameter(f"there is no part {name!r}; --list shows them")
    return found


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="The folder of results and of how far it is."
)
@click.option("--list", "listing", is_flag=True, help="Show the parts and how they ended.")
@click.option("--part", callback=_part, metavar="NAME", help="Run this part alone, again if need be.")
def main(out: Path | None, listing: bool, part: Any) -> None:
    """Run what is left of the first hour on a GPU."""
    if listing:
        kept = Record(out, PARTS, {}).outcomes if out is not None and out.exists() else {}
        for each in PARTS:
            state = kept[each.name].state if each.name in kept else "to do"
            click.echo(f"{each.name:24} {state:12} {each.about}")
        return
    if out is None:
        raise click.UsageError("--out FOLDER is missing.")
    record = Record(out, PARTS, machine())
    if part is not None:
        stopped = part if record.run(part).state not in ("passed", "skipped") else None
        click.echo(f"{part.name}: {record.outcomes[part.name].state}")
    else:
        stopped = run_all(record, click.echo)
    if stopped is not None:
        click.echo("\n" + record.trouble(stopped), err=True)
        sys.exit(ExitCode.ERROR)
    if not record.left():
        click.echo(f"All parts have passed: {out / 'summary.md'}")


if __name__ == "__main__":
    main()
