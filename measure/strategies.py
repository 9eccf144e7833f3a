"""Writes the table and the sections of docs/strategies.md: `python -m measure.strategies`."""

from pathlib import Path

from measure.marks import marks, rewritten
from specchat.engine.strategies import STRATEGIES

PAGE = Path(__file__).parents[1] / "docs" / "strategies.md"
BEGIN, END = marks("strategies")


def generated() -> str:
    """A table whose names lead to the sections below it, as Markdown."""
    rows = [f"| [`{one.name}`](#{one.name}) | {one.summary} |" for one in STRATEGIES.values()]
    sections = [f"## {one.name}\n\n{one.summary}\n{one.notes}\n" for one in STRATEGIES.values()]
    return "\n".join(["| strategy | who drafts |", "|---|---|", *rows, "", *sections])


def page() -> str:
    """The page with its part generated anew.

    Raises:
        ValueError: a mark is missing.
    """
    return rewritten(PAGE.read_text("utf-8"), PAGE, BEGIN, END, generated())


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
