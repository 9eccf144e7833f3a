"""The cost model beside published speedups: the tables of docs/cost-model.md, from docs/cost-model.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.bench.cost_model import speed_up, step_cost

DATA = Path(__file__).parents[1] / "docs" / "cost-model.toml"
MAX_ERROR = 0.15


@dataclass(frozen=True)
class Row:
    """A published row; speedups are over plain decoding. `predicted` is None if the row provided the costs."""

    what: str
    tokens: float
    published: float
    predicted: float | None
    outside: str

    @property
    def error(self) -> float | None:
        """Relative error of the prediction."""
        return None if self.predicted is None else self.predicted / self.published - 1


@dataclass(frozen=True)
class Table:
    """Rows of one source."""

    name: str
    url: str
    date: str
    costs: str
    rows: tuple[Row, ...]


def tables() -> list[Table]:
    """All tables with predictions."""
    return [_table(entry) for entry in _read()["table"]]


def tables_shown() -> str:
    """All tables in Markdown."""
    found = tables()
    rows = [row for table in found for row in table.rows if row.error is not None]
    errors = sorted(abs(row.error or 0.0) for row in rows)
    near = sum(error <= MAX_ERROR for error in errors)
    lines = [
        f"{near} of {len(rows)} predictions are within {MAX_ERROR:.0%} of what was published; the median error is "
        f"{errors[len(errors) // 2]:.1%}, the largest {errors[-1]:.1%}.",
        "",
        "| source | costs | tokens a step: predicted / published, error |",
        "|---|---|---|",
    ]
    for table in found:
        figures = " · ".join(map(_figures, table.rows))
        lines.append(f"| [{table.name}]({table.url}), {table.date} | {table.costs} | {figures} |")
    lines += [""]
    lines += [f"{table.name}, {row.what}: {row.outside}" for table in found for row in table.rows if row.outside]
    lines += ["", "Not predictable, for want of an input:", "", "| what | date | missing |", "|---|---|---|"]
    lines += [f"| [{e['what']}]({e['url']}) | {e['date']} | {e['missing']} |" for e in _read()["unpredictable"]]
    return "\n".join(lines) + "\n"


def _read() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text())


def _table(entry: dict[str, Any]) -> Table:
    published = [_published(row, entry.get("milliseconds", False)) for row in entry["row"]]
    draft, check = _costs(entry, published)
    rows = tuple(
        Row(
            what=row["what"],
            tokens=row["tokens"],
            published=times,
            predicted=None
            if row.get("calibrates")
            else speed_up(row["tokens"], step_cost(row.get("length", 0), draft, check)),
            outside=row.get("outside", ""),
        )
        for row, times in zip(entry["row"], published, strict=True)
    )
    return Table(entry["name"], entry["url"], entry["date"], entry["costs"], rows)


def _published(row: dict[str, Any], milliseconds: bool) -> float:
    if "times" in row:
        return float(row["times"])
    times = row["speed"] / row["plain"]
    return float(1 / times if milliseconds else times)


def _costs(entry: dict[str, Any], published: list[float]) -> tuple[float, float]:
    """Costs of a draft token and of the rest of a step."""
    given = [
        (row.get("length", 0), row["tokens"] / times)
        for row, times in zip(entry["row"], published, strict=True)
        if row.get("calibrates")
    ]
    match given:
        case []:
            return entry["draft"], entry["check"]
        case [(length, step)] if "check" in entry:
            return (step - entry["check"]) / length, entry["check"]
        case [(_, step)]:
            return 0.0, step
        case [(short, less), (long, more)]:
            draft = (more - less) / (long - short)
            return draft, less - draft * short
    raise ValueError(f"{entry['name']}: more rows calibrate than there are costs")


def _figures(row: Row) -> str:
    if row.predicted is None or row.error is None:
        return f"{row.what} {row.tokens:.2f}: {row.published:.2f} (calibrates)"
    return f"{row.what} {row.tokens:.2f}: {row.predicted:.2f} / {row.published:.2f}, {row.error:+.0%}"
