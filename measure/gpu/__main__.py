"""The developer's hour on a GPU as one command, in parts of at most nine minutes.

    python -m measure.gpu --out FOLDER [--list] [--part NAME]

It starts with the checks of `specchat doctor --gpu`, followed by tests that need a GPU, sanitizers, sizes to tune, and
faults. Each part runs in its own process, whatever failed before. A second run repeats the parts that did not pass; a
folder holds the results of one commit. FOLDER gets `summary.md`, `summary.json`, and a folder per part with its output,
tables and profiles.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from measure.gpu.parts import PARTS
from measure.gpu.record import OtherCommit, Outcome, Part, Record, run_all
from specchat.cli.exit_codes import ExitCode
from specchat.config.paths import demo_model
from specchat.doctor.gpu_checks import ENVIRONMENT
from specchat.doctor.gpu_report import GpuReport, Listener
from specchat.doctor.gpu_report import run_all as run_checks
from specchat.doctor.versions import commit


class Unusable(click.ClickException):
    """No usable GPU, or a folder of another commit."""

    exit_code = ExitCode.UNUSABLE


def machine() -> dict[str, str]:
    """Versions and GPU of this machine.

    Raises:
        Unusable: there is no GPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = GpuReport(Path(folder, "environment.zip"))
        run_checks((ENVIRONMENT,), report, demo_model("target").parent, Listener())
    if report.gpu is None:
        words = report.without or report.outcomes[ENVIRONMENT.name].words
        raise Unusable(f"The parts need a CUDA GPU: {words}.")
    about = report.summary()
    packages: dict[str, str | None] = about["packages"]
    return {"GPU": report.gpu, "system": about["system"], **{name: found or "none" for name, found in packages.items()}}


def _record(out: Path, versions: dict[str, str]) -> Record:
    try:
        return Record(out, PARTS, versions, commit())
    except OtherCommit as other:
        raise Unusable(f"{out} holds results of {other}, and this is {commit()}. Name a new folder.") from None


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
    """Run the remaining parts of the first hour on a GPU."""
    if listing:
        kept: dict[str, Outcome] = _record(out, {}).outcomes if out is not None and out.exists() else {}
        for each in PARTS:
            state = kept[each.name].state if each.name in kept else "to do"
            click.echo(f"{each.name:24} {state:12} {each.about}")
        return
    if out is None:
        raise click.UsageError("--out FOLDER is missing.")
    record = _record(out, machine())
    if part is not None:
        record.run(part)
        click.echo(f"{part.name}: {record.outcomes[part.name].state}")
    else:
        run_all(record, click.echo)
    for wrong in record.bad() if part is None else [one for one in record.bad() if one == part]:
        click.echo("\n" + record.trouble(wrong), err=True)
    left = [one.name for one in record.left()]
    click.echo(f"Not passed: {', '.join(left)}" if left else f"All parts have passed: {out / 'summary.md'}")
    if record.bad():
        sys.exit(ExitCode.ERROR)


if __name__ == "__main__":
    main()
