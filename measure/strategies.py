"""Writes README's table of strategies and the sections of docs/strategies.md: `python -m measure.strategies`."""

from collections.abc import Callable
from pathlib import Path

from measure.marks import marks, rewritten
from specchat.engine.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
BEGIN, END = marks("strategies")


def table() -> str:
    """README's table, as Markdown; each name leads to its section of docs/strategies.md."""
    rows = [f"| [`{one.name}`](docs/strategies.md#{one.name}) | {one.summary} |" for one in STRATEGIES.values()]
    return "\n".join(["| strategy | who drafts |", "|---|---|", *rows, ""])


def sections() -> str:
    """The sections, as Markdown."""
    return "\n".join(f"## {one.name}\n\n{one.summary}\n{one.notes}\n" for one in STRATEGIES.values())


PAGES: dict[Path, Callable[[], str]] = {ROOT / "README.md": table, ROOT / "docs" / "strategies.md": sections}
"""Generated part of each page."""


def page(path: Path) -> str:
    """A page with its part generated anew.

    Raises:
        ValueError: a mark is missing.
    """
    return rewritten(path.read_text("utf-8"), path, BEGIN, END, PAGES[path]())


if __name__ == "__main__":
    for written in PAGES:
        written.write_text(page(written), "utf-8")
