"""Rows of figures as a Markdown table and as JSON, in a folder and on the screen."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write(out: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write `name`.md and `name`.json; a table for each run of rows with the same columns."""
    lines: list[str] = []
    columns: list[str] = []
    for row in rows:
        if list(row) != columns:
            columns = list(row)
            lines += ["", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines.append("| " + " | ".join(_shown(row[column]) for column in columns) + " |")
    text = "\n".join(lines).lstrip("\n") + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    (out / f"{name}.json").write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf-8")
    print(text)


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace("|", "\\|").replace("\n", " ")
