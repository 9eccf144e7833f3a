"""Measures the app's cost for the engine: the same reply shown by the app or only read, in turns, from one process.

    python -m measure.share [--pairs 20] [--strategy plain]

The app runs in a pseudo-terminal of 120x36. `tokens/s` are the engine's own figures; `processor` is the engine's
processor time, which excludes other programs.
"""

import json
import tempfile
from math import sqrt
from pathlib import Path
from statistics import quantiles
from typing import Any

import click

from measure.terminal import Terminal
from specchat.bench.report import describe


def measure(pairs: int, strategy: str) -> dict[str, list[dict[str, float]]]:
    """Figures of the "drawn" and "read" replies, in order.

    Raises:
        ClickException: the app ended early.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        plan: dict[str, Any] = {"report": str(report), "pairs": pairs, "strategy": strategy}
        terminal = Terminal(["-m", "measure.inside_app", "share", json.dumps(plan)], {"SPECCHAT_HOME": folder})
        try:
            while terminal.watch(1.0) and not report.exists():
                pass
        finally:
            terminal.close()
        if not report.exists():
            raise click.ClickException("The app ended before all replies were made.")
        found: dict[str, list[dict[str, float]]] = json.loads(report.read_text())
        return found


def _shown(name: str, values: list[float], digits: int) -> str:
    """Median, quartiles, and the order statistics around the true median at 95 % confidence."""
    ordered, spread = sorted(values), 0.98 * sqrt(len(values))
    least = ordered[max(int(len(values) / 2 - spread), 0)]
    most = ordered[min(int(len(values) / 2 + spread), len(values) - 1)]
    low, middle, high = (f"{value:.{digits}f}" for value in quantiles(values, n=4))
    return f"{name:24} median {middle:>7}, 95 % sure in {least:.{digits}f}-{most:.{digits}f}; quartiles {low}-{high}"


@click.command()
@click.option("--pairs", default=20)
@click.option("--strategy", default="plain")
def main(pairs: int, strategy: str) -> None:
    """Measure and print medians and quartiles of the pairs' ratios."""
    found = measure(pairs, strategy)
    drawn, read = found["drawn"], found["read"]
    click.echo(describe(("specchat", "torch", "textual")))
    click.echo(f"{pairs} pairs of replies of {drawn[0]['tokens']:.0f} tokens, {strategy}")
    for name, replies in found.items():
        click.echo(_shown(f"tokens/s {name}", [reply["speed"] for reply in replies], 0))
    both = list(zip(drawn, read, strict=True))
    click.echo(_shown("tokens/s drawn / read", [a["speed"] / b["speed"] for a, b in both], 3))
    click.echo(_shown("processor drawn / read", [a["cpu"] / b["cpu"] for a, b in both], 3))
    click.echo(_shown("app's share of a core", [reply["share"] for reply in drawn], 3))


if __name__ == "__main__":
    main()
