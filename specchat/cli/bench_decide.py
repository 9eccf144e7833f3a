"""`specchat bench --decide`: who should draft on this machine, and how far."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from specchat.bench.decide import Decided
    from specchat.bench.report import BenchReport

DECIDE_OPTIONS = (
    click.option("--decide", is_flag=True, help="Say who should draft here, how far, and when a draft pays."),
)
STRANGE = {"cases": "--strategy", "against": "--against", "plot_file": "--plot"}
"""Options that have no meaning with --decide."""


def check_decide(options: dict[str, Any]) -> None:
    """Refuse options that have no meaning with --decide."""
    if options["decide"] and (stray := [option for name, option in STRANGE.items() if options[name]]):
        raise click.UsageError(f"{stray[0]} has no meaning with --decide, which weighs all that the pair has.")


def decided_of(report: "BenchReport") -> "Decided | None":
    """The decision; None, and a note in the report, where the cost of checks was not measured."""
    from specchat.bench.decide import decide

    if not report.verify_cost:
        report.notes.append("nothing is decided: what checks cost was not measured")
        return None
    return decide(report.samples, report.verify_cost)


def written(report: "BenchReport", decided: "Decided | None") -> str:
    """The decision in words, or the tables of measurements without one."""
    from specchat.bench.decide_text import decided_text

    return report.text() if decided is None else decided_text(decided, report.head, report.notes)
