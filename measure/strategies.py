"""README's table of strategies, written from their rows: `python -m measure.strategies`."""

from pathlib import Path

from measure.marks import marks, rewritten
from specchat.engine.strategies import STRATEGIES

PAGE = Path(__file__).parents[1] / "README.md"
BEGIN, END = marks("strategies")


def table() -> str:
    """The table, as Markdown; each name leads to its part of docs/strategies.md."""
    rows = [f"| [`{info.name}`](docs/strategies.md#{info.name}) | {info.description} |" for info in STRATEGIES.values()]
    return "\n".join(["| strategy | who drafts |", "|---|---|", *rows, ""])


def page(text: str) -> str:
    """README's `text` with the table anew.

    Raises:
        ValueError: a mark is missing.
    """
    return rewritten(text, PAGE, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
