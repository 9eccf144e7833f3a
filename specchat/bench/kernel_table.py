"""Figures of kernels as text and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from specchat.bench.kernels import Machine, Measured

SCHEMA = 1


def heading(machine: Machine) -> str:
    """The machine, and the meaning of the columns."""
    return (
        f"{machine.host}\n{machine.device}, {machine.bandwidth / 1e9:.0f} GB/s copying within its memory\n"
        "us: microseconds a call in a captured graph, median and quartiles. x 1: over one row of the same.\n"
        "memory: share of that bandwidth at which weights or cache come in. alone: each row is bit for bit what it is "
        "alone.\n"
        "ours: how many times as fast as the other library's the product of ours is at that many rows.\n\n"
    )


def table(measured: Sequence[Measured]) -> str:
    """One kernel by the number of rows, beside the other libraries."""
    first = measured[0]
    lines = [f"{first.what}" + (f"  ({first.read / 2**20:.1f} MiB)" if first.read else "")]
    lines.append(f"{'':14}{'rows':>5}{'us':>10}{'quartiles':>18}{'x 1':>7}{'memory':>8}{'alone':>7}{'ours':>7}")
    one = {m.by: m.us.median for m in measured if m.rows == 1 and m.us is not None}
    ours = {m.rows: m.us.median for m in measured if m.by == "specchat" and m.us is not None}
    shown = ""
    for m in measured:
        by = m.by if m.by != shown else ""
        shown = m.by
        if m.us is None:
            lines.append(f"{by:14}{m.rows:>5}  not measured: {m.error}")
            continue
        us, quartiles = f"{m.us.median:.2f}", f"{m.us.low:.2f}-{m.us.high:.2f}"
        flat = f"{m.us.median / one[m.by]:.2f}" if m.by in one else ""
        memory = f"{m.bandwidth:.0%}" if m.bandwidth is not None else ""
        alone = "" if m.alike is None else "yes" if m.alike else "no"
        times = f"{m.us.median / ours[m.rows]:.2f}" if m.by != "specchat" and m.rows in ours else ""
        lines.append(f"{by:14}{m.rows:>5}{us:>10}{quartiles:>18}{flat:>7}{memory:>8}{alone:>7}{times:>7}".rstrip())
    return "\n".join(lines) + "\n\n"


def summary(measured: Sequence[Measured]) -> str:
    """How many comparisons of rows with rows alone came out equal, by library."""
    lines = []
    for by in dict.fromkeys(m.by for m in measured):
        compared = [m.alike for m in measured if m.by == by and m.alike is not None]
        lines.append(f"{by}: rows equal to rows alone in {sum(compared)} of {len(compared)} cases")
    return "\n".join(lines) + "\n"


def not_alike(measured: Sequence[Measured]) -> list[str]:
    """Our kernels that gave a row other bits than alone: there must be none."""
    return [f"{m.what} at {m.rows} rows" for m in measured if m.by == "specchat" and m.alike is False]


def as_json(machine: Machine, measured: Sequence[Measured]) -> dict[str, Any]:
    """All figures; times in microseconds, bandwidth in bytes a second."""
    return {"schema": SCHEMA, "machine": asdict(machine), "kernels": [asdict(m) for m in measured]}
