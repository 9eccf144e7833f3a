"""Measures the app under a fast engine: event-loop stalls, key to echo while a reply streams, and idle cost.

    python -m measure.feel [--tokens 8000] [--speed 300] [--idle 10]

The app runs in a pseudo-terminal over a scripted engine; the reply ends in a 300-line fence and 60 list items. Stalls
are measured in the app's event loop, echo from outside. `work` is the loop's processor time between two beats of 10 ms,
which unlike the clock excludes other programs.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

from measure.terminal import Terminal
from specchat.bench.report import describe
from tests.fake import INFO

CTRL_T, CTRL_B = "\x14", "\x02"


@dataclass(frozen=True)
class Scenario:
    name: str
    keys: str = ""
    """Typed before the prompt."""
    messages: int = 0
    strategy: str = "draft"


SCENARIOS = (
    Scenario("reply"),
    Scenario("reply, 300 steps/s", strategy="plain"),
    Scenario("token view", keys=CTRL_T),
    Scenario("list of chats open", keys=f"{CTRL_B}\t"),
    Scenario("10,000 messages", messages=10_000),
)


@dataclass(frozen=True)
class Feel:
    """Milliseconds; `idle` and `busy` are shares of one core."""

    opening: float
    stall: float
    work: float
    end: float
    echoes: tuple[float, ...]
    busy: float
    idle: float


def measure(scenario: Scenario, tokens: int = 8000, speed: float = 300.0, idle: float = 10.0) -> Feel:
    """Run one scenario.

    Raises:
        TimeoutError: the app did not show the expected text.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        plan: dict[str, Any] = {
            "report": str(report), "tokens": tokens, "speed": speed, "idle": idle,
            "messages": scenario.messages, "strategy": scenario.strategy,
        }  # fmt: skip
        terminal = Terminal(["-m", "measure.feel_app", json.dumps(plan)], {"SPECCHAT_HOME": folder})
        try:
            terminal.wait("fox number" if scenario.messages else f"on {INFO.load.device}")
            terminal.watch(1.0)
            for key in scenario.keys:
                terminal.type(key)
                terminal.watch(0.3)
            terminal.type("Tell me")
            terminal.watch(0.3)
            terminal.type("\r")
            terminal.watch(0.5)
            echoes = _echoes(terminal, tokens / speed - 2.0)
            _wait_for(report, terminal, 30.0 + idle)
        finally:
            terminal.close()
        phases = json.loads(report.read_text())
    return Feel(
        opening=max(phases["start"]["stalls"]),
        stall=max(phases["stream"]["stalls"]),
        work=max(phases["stream"]["worked"]),
        end=max(phases["end"]["stalls"]),
        echoes=tuple(echoes),
        busy=phases["stream"]["cpu"] / phases["stream"]["seconds"],
        idle=phases["idle"]["cpu"] / phases["idle"]["seconds"],
    )


def _wait_for(report: Path, terminal: Terminal, seconds: float) -> None:
    end = perf_counter() + seconds
    while terminal.watch(0.5) and not report.exists():
        if perf_counter() > end:
            raise TimeoutError(f"no report came within {seconds} s of the reply's end")


def _echoes(terminal: Terminal, seconds: float) -> list[float]:
    """Type letters at intervals; milliseconds until each shows."""
    found: list[float] = []
    end = perf_counter() + seconds
    for number in range(1 << 20):
        if perf_counter() >= end:
            break
        key = "§±µ¶¤¦"[number % 6]
        typed = perf_counter()
        terminal.type(key)
        terminal.wait(key, 10.0)
        found.append(1e3 * (perf_counter() - typed))
        terminal.watch(0.37)
    return found


@click.command()
@click.option("--tokens", default=8000)
@click.option("--speed", default=300.0)
@click.option("--idle", default=10.0)
@click.option("--only", default="", help="The scenarios whose names begin so.")
def main(tokens: int, speed: float, idle: float, only: str) -> None:
    """Measure and print a table: milliseconds, and shares of one core."""
    click.echo(describe(("specchat", "textual")))
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    click.echo(f"{tokens} tokens at {speed:g}/s; load of the machine before {load}")
    head = ("", "opening", "stall", "work", "at the end", "echo", "slowest", "busy", "idle")
    click.echo(f"{head[0]:22}" + "".join(f"{name:>11}" for name in head[1:]))
    for scenario in SCENARIOS:
        if scenario.name.startswith(only):
            feel = measure(scenario, tokens, speed, idle)
            times = (feel.opening, feel.stall, feel.work, feel.end, median(feel.echoes), max(feel.echoes))
            shares = (feel.busy, feel.idle)
            click.echo(
                f"{scenario.name:22}"
                + "".join(f"{value:8.0f} ms" for value in times)
                + "".join(f"{100 * share:9.1f} %" for share in shares)
            )


if __name__ == "__main__":
    main()
