"""Counts starts whose second reply shows a multiplier, on the demo in the app, while other programs run.

    python -m measure.second [--tries 20] [--busiest 4] [--pairs 8] [--json FILE]

A try starts the app anew, beside 0 to `busiest` busy loops, and lets it answer two suggested prompts, each in a chat
of its own. The multiplier is compared with the truth, as in `measure.load`: plain decoding's time over the strategy's,
from pairs of replies right after, each after a rest as between two prompts. Pairs alone are as far off as chance is.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from measure.load import AT_ODDS, Pair, Truth
from measure.terminal import Terminal
from specchat.tui.composing.suggestions import SUGGESTIONS

REST_S = 0.3
"""Seconds before each reply."""


@dataclass(frozen=True)
class Try:
    """The second reply's multiplier with its interval, None where none is shown; and the truth."""

    loops: int
    first: bool
    """True if the first reply shows one."""
    shown: list[float] | None
    truth: Truth
    alone: list[float]
    """The ratio of each pair alone, as a share of the truth."""

    @classmethod
    def of(cls, loops: int, report: dict[str, Any]) -> "Try":
        first, second = (one["times"] for one in report["shown"])
        pairs = [Pair(0.0, 0.0, own, plain) for own, plain in report["pairs"]]
        truth = Truth.of(pairs)
        return cls(loops, first is not None, second, truth, [Truth.of([pair]).times / truth.times for pair in pairs])


def started(number: int, loops: int, pairs: int) -> Try:
    """Start the app and end it again."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            prompts = [SUGGESTIONS[number % 3], SUGGESTIONS[(number + 1) % 3]]
            plan = {"report": str(report), "prompts": prompts, "seed": number, "rest": REST_S, "pairs": pairs}
            terminal = Terminal(["-m", "measure.inside_app", "second", json.dumps(plan)], {"SPECCHAT_HOME": folder})
            while terminal.watch(1.0):
                pass
            terminal.close()
            return Try.of(loops, json.loads(report.read_text()))
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--tries", type=int, default=20)
    options.add_argument("--busiest", type=int, default=4)
    options.add_argument("--pairs", type=int, default=8)
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    tries: list[Try] = []
    for number in range(asked.tries):
        tries.append(started(number, number % (asked.busiest + 1), asked.pairs))
        print(tries[-1], flush=True)
    shown = [(one.shown, one.truth) for one in tries if one.shown is not None]
    print(
        f"{len(shown)} of {len(tries)} second replies show a multiplier, {sum(one.first for one in tries)} first ones"
    )
    off = [times[0] / truth.times for times, truth in shown]
    if off:
        print(f"shown / truth: median {median(off):.2f}, {min(off):.2f} to {max(off):.2f}")
        print(f"beyond {AT_ODDS:.0%}: {sum(abs(one - 1) > AT_ODDS for one in off)} of {len(off)}")
        alone = [one for each in tries for one in each.alone]
        print(f"pairs alone beyond: {sum(abs(one - 1) > AT_ODDS for one in alone)} of {len(alone)}")
        print(f"truth in the interval: {sum(low <= truth.times <= high for (_, low, high), truth in shown)}")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(one) for one in tries]))


if __name__ == "__main__":
    main()
