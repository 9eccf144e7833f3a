"""Measures the app's latency: first paint, ready, and key to echo while a reply streams.

    python -m measure.app [--runs 5]

The app runs in a pseudo-terminal of 120x36. Plain decoding makes the reply long enough to type into. Times are taken
outside, from the app's output.
"""

import tempfile
from statistics import median
from time import perf_counter, sleep

import click

from measure.terminal import Terminal, processor_s
from specchat.bench.report import describe

PROMPT = "Tell me a story about a fox, a lamp and a river."


@click.command()
@click.option("--runs", default=5)
def main(runs: int) -> None:
    """Measure and print medians and ranges."""
    figures: dict[str, list[float]] = {"first paint s": [], "its processor s": [], "ready s": [], "key to echo ms": []}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(runs):
            terminal = Terminal(["-m", "specchat", "--seed", "1", "--strategy", "plain"], {"SPECCHAT_HOME": home})
            terminal.wait("ask something")
            figures["first paint s"].append(perf_counter() - terminal.started)
            figures["its processor s"].append(processor_s(terminal.pid))
            terminal.wait("built-in demo model")
            figures["ready s"].append(perf_counter() - terminal.started)
            sleep(1.0)
            terminal.type(PROMPT)
            sleep(0.5)
            terminal.type("\r")
            sleep(0.2)
            for key in "§±":
                typed = perf_counter()
                terminal.type(key)
                terminal.wait(key, 5.0)
                figures["key to echo ms"].append(1e3 * (perf_counter() - typed))
                sleep(0.1)
            terminal.close()
    click.echo(describe(("specchat", "torch", "textual")))
    for name, values in figures.items():
        click.echo(
            f"{name:16} median {median(values):7.2f}   range {min(values):.2f} - {max(values):.2f}   n {len(values)}"
        )


if __name__ == "__main__":
    main()
