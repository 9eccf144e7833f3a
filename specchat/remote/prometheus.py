"""Reads counters from a page in Prometheus' text format."""

from collections.abc import Mapping
from math import isfinite


def counters(page: str, prefix: str) -> Mapping[str, float]:
    """Sums over all labels of the samples whose names begin with `prefix`, by the rest of the name."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        if not line.startswith(prefix):
            continue
        name = line.removeprefix(prefix).split("{", 1)[0].split(" ", 1)[0]
        try:
            value = float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
        except (ValueError, IndexError):
            continue
        if isfinite(value):
            found[name] = found.get(name, 0.0) + value
    return found


def labels(page: str, name: str, label: str) -> set[str]:
    """The values of a label in the samples called `name`."""
    mark = f'{label}="'
    rows = (line for line in page.splitlines() if line.startswith(f"{name}{{"))
    return {row.split(mark, 1)[1].split('"', 1)[0] for row in rows if mark in row}
