"""Marks in a page, between which a script writes its part."""

from pathlib import Path


def marks(script: str) -> tuple[str, str]:
    """The marks around the output of `python -m measure.SCRIPT`."""
    return f"<!-- below: python -m measure.{script} -->\n", f"<!-- above: python -m measure.{script} -->\n"


def rewritten(text: str, page: Path, begin: str, end: str, body: str) -> str:
    """The page `text` with `body` between two marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{page} lacks its marks")
    return f"{before}{begin}{body}{end}{after}"
