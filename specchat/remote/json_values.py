"""Values in what servers send, which may be anything."""

from collections.abc import Mapping
from typing import Any

from specchat.clean import valid


def whole(value: Any, otherwise: int | None = None) -> int | None:
    """`value` if it is a count, else `otherwise`."""
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if counts else otherwise


def milliseconds(value: Any) -> float | None:
    """`value` if it is a time."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else None


def table(value: Any) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def valid_text(value: Any) -> str:
    """`value` if it is text; halves of surrogate pairs become U+FFFD."""
    return valid(value) if isinstance(value, str) else ""
