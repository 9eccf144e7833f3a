"""Writes the parts of pages that come from the code or from a measurement, each between its marks.

    python -m measure.pages                     # all that come from the code and from data
    python -m measure.pages NAME [OPTION ...]   # one; those of a measurement take minutes, and options of the bench

A failed measurement leaves its page unchanged.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from measure import backends, brought, drafted, gguf_types, published
from specchat.engine.strategies import STRATEGIES

DOCS = Path(__file__).parents[1] / "docs"


class Part(NamedTuple):
    """A part of the page `file`, made by `make` of the options of the command line."""

    file: str
    make: Callable[[Sequence[str]], str]
    derived: bool = True
    """True if it comes from the code or from data alone."""


def marks(name: str) -> tuple[str, str]:
    """The marks around a part."""
    return f"<!-- below: python -m measure.pages {name} -->\n", f"<!-- above: python -m measure.pages {name} -->\n"


def shown(name: str) -> str:
    """A part as its page has it now.

    Raises:
        ValueError: a mark is missing.
    """
    begin, end = marks(name)
    _, found, rest = (DOCS / PARTS[name].file).read_text("utf-8").partition(begin)
    part, ended, _ = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{PARTS[name].file} lacks the marks of {name}")
    return part


def write(name: str, options: Sequence[str] = ()) -> None:
    """Make a part and write its page; raises as `shown` does."""
    page, before = DOCS / PARTS[name].file, shown(name)
    begin, end = marks(name)
    made = PARTS[name].make(options)
    text = page.read_text("utf-8")
    page.write_text(text.replace(f"{begin}{before}{end}", f"{begin}{made}{end}"), "utf-8")


def strategies() -> str:
    """A table whose names lead to the sections below it."""
    rows = [f"| [`{one.name}`](#{one.name}) | {one.summary} |" for one in STRATEGIES.values()]
    sections = [f"## {one.name}\n\n{one.summary}\n{one.notes}\n" for one in STRATEGIES.values()]
    return "\n".join(["| strategy | who drafts |", "|---|---|", *rows, "", *sections])


def decide(options: Sequence[str]) -> str:
    """The output of `specchat bench --decide`."""
    command = ["specchat", "bench", "--decide", *options]
    made = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, check=True)
    return f"```text\n$ {' '.join(command)}\n{made.stdout.strip()}\n```\n"


PARTS = {
    "strategies": Part("strategies.md", lambda _: strategies()),
    "backends": Part("backends.md", lambda _: backends.table()),
    "gguf": Part("gguf.md", lambda _: gguf_types.tables()),
    "published": Part("cost-model.md", lambda _: published.tables_shown()),
    "brought": Part("strategies.md", brought.measured, derived=False),
    "decide": Part("decide.md", decide, derived=False),
    "drafted": Part("demo-model.md", lambda _: drafted.measured(), derived=False),
}


if __name__ == "__main__":
    for chosen in sys.argv[1:2] or [name for name, part in PARTS.items() if part.derived]:
        write(chosen, sys.argv[2:])
