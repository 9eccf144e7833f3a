"""Writes the output of `specchat bench --decide` into docs/decide.md: `python -m measure.decide`, with its options."""

import subprocess
import sys
from pathlib import Path

from measure.marks import marks, rewritten

PAGE = Path(__file__).parents[1] / "docs" / "decide.md"
BEGIN, END = marks("decide")


def page(text: str, command: str, printed: str) -> str:
    """The page `text` with the output of `command` between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    return rewritten(text, PAGE, BEGIN, END, f"```text\n$ {command}\n{printed.strip()}\n```\n")


def main(options: list[str]) -> None:
    """Measure for some minutes and write the page; a failed measurement leaves it unchanged."""
    command = ["specchat", "bench", "--decide", *options]
    made = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, check=True)
    PAGE.write_text(page(PAGE.read_text("utf-8"), " ".join(command), made.stdout), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
