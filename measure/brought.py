"""The speedups of the demo pair in docs/strategies.md.

Runs `specchat bench --limit 60`, or with other options, and formats its figures; a text that differs from plain
decoding's is an error.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

LIMIT = ["--limit", "60"]


def table(command: str, figures: Mapping[str, Any]) -> str:
    """Output of `specchat bench --json` as a Markdown table below its `command`.

    Raises:
        ValueError: a strategy's text differs from plain decoding's.
    """
    contenders = {one["contender"]: one for one in figures["contenders"]}
    plain = contenders.pop("plain")["tokens_per_second"]["median"]
    prompts, repeats, tokens = len({r["prompt"] for r in figures["replies"]}), figures["repeats"], figures["tokens"]
    heads = ("strategy", "tokens/s", "x plain", "quartiles", "whole reply", "AL", "accepted of tested")
    lines = [
        f"`{command}`; {figures['machine']}. {prompts} prompts, {repeats} replies each, at most {tokens} tokens. Plain"
        f" writes {plain:,.0f} tokens/s.",
        "",
        _row((*heads, *figures["categories"])),
        _row(["---"] * (len(heads) + len(figures["categories"]))),
    ]
    for name, one in contenders.items():
        if one["identical"] != one["prompts"]:
            raise ValueError(f"{name} wrote another text than plain: run specchat check")
        times, whole = one["speedup_vs_plain"], one["whole_speedup_vs_plain"]
        shown = (
            name,
            f"{one['tokens_per_second']['median']:,.0f}",
            f"**{times['median']:.2f}**",
            f"{times['low']:.2f}-{times['high']:.2f}",
            f"{whole['median']:.2f}",
            f"{one['mean_acceptance_length']:.2f}",
            f"{one['tested_acceptance_rate']:.0%}",
        )
        by_category = (_times(rows, name) for rows in figures["categories"].values())
        lines.append(_row((*shown, *by_category)))
    return "\n".join(lines) + "\n"


def _row(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _times(rows: list[dict[str, Any]], name: str) -> str:
    """Speedup of a contender in a category."""
    found = next(row["speedup_vs_plain"] for row in rows if row["contender"] == name)
    return f"{found['median']:.2f}"


def measured(options: Sequence[str]) -> str:
    """Measure for some minutes; returns the table."""
    command = ["specchat", "bench", *(options or LIMIT)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        subprocess.run([sys.executable, "-m", *command, "--json", str(file)], check=True)
        figures = json.loads(file.read_text("utf-8"))
    return table(" ".join(command), figures)
