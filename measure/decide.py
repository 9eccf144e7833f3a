"""What `specchat bench --decide` prints, written into docs/decide.md: `python -m measure.decide`, with its options."""

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "decide.md"
BEGIN, END = "<!-- below: python -m measure.decide -->\n", "<!-- above: python -m measure.decide -->\n"


def page(text: str, command: str, printed: str) -> str:
    """The page `text` with what `command` printed between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} lacks its marks")
    return f"{before}{BEGIN}```text\n$ {command}\n{printed.strip()}\n```\n{END}{after}"


def main(options: list[str]) -> None:
    """Measure, which takes minutes, and write the page; a measurement that fails leaves it as it is."""
    command = ["specchat", "bench", "--decide", *options]
    made = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, check=True)
    PAGE.write_text(page(PAGE.read_text("utf-8"), " ".join(command), made.stdout), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
