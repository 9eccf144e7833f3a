"""How the app feels: first paint, ready, key to echo while a reply streams, and what the app costs the engine.

    python -m measure.app [--runs 5]

The real app runs in a pseudo-terminal of 120x36 and decodes plainly, so that the reply lasts long enough to type into;
times are taken outside of it, from what it writes there.
"""

import json
import os
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter, sleep

import click

from measure.terminal import Terminal
from specchat.bench.machine import describe

PROMPT = "Tell me a story about a fox, a lamp and a river."
FOOTER = r"(\d+) tok/s · [\d.]+x plain · \d+ tokens"


def headless(home: str) -> float:
    """Tokens per second of the same reply without the app."""
    command = [sys.executable, "-m", "specchat", "ask", PROMPT, "--seed", "1", "--strategy", "plain", "--json"]
    result = subprocess.run(command, env=os.environ | {"SPECCHAT_HOME": home}, capture_output=True, check=True)
    return float(json.loads(result.stdout)["stats"]["tokens_per_second"])


@click.command()
@click.option("--runs", default=5)
def main(runs: int) -> None:
    """Measure and print medians and ranges."""
    figures: dict[str, list[float]] = {"first paint s": [], "ready s": [], "key to echo ms": [], "app / headless": []}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(runs):
            alone = headless(home)
            terminal = Terminal(["-m", "specchat", "--seed", "1", "--strategy", "plain"], {"SPECCHAT_HOME": home})
            terminal.wait("ask something")
            figures["first paint s"].append(perf_counter() - terminal.started)
            terminal.wait("plain decoding \\d+ tok/s")
            figures["ready s"].append(perf_counter() - terminal.started)
            sleep(1.0)
            terminal.type(PROMPT)
            sleep(0.5)
            terminal.type("\r")
            sleep(0.2)
            written = b""
            for key in "§±":
                written += terminal.seen
                terminal.seen = b""
                typed = perf_counter()
                terminal.type(key)
                terminal.wait(key, 5.0, keep=True)
                figures["key to echo ms"].append(1e3 * (perf_counter() - typed))
                sleep(0.1)
            terminal.seen = written + terminal.seen
            footer = terminal.wait(FOOTER)
            terminal.close()
            figures["app / headless"].append(float(footer.group(1)) / alone)
    click.echo(describe(("specchat", "torch", "textual")))
    for name, values in figures.items():
        click.echo(
            f"{name:16} median {median(values):7.2f}   range {min(values):.2f} - {max(values):.2f}   n {len(values)}"
        )


if __name__ == "__main__":
    main()
