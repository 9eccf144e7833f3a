"""A reply's record as bytes: one column a field of its steps, as compressed JSON."""

import json
import zlib
from dataclasses import asdict, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from specchat.chat.record import Record
from specchat.clean import clean
from specchat.engine.api import Changed, Speculation, Step

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_LEVEL = 3
_MOST = 1 << 16
"""Tokens of a step; no drafter comes near it."""
Columns = dict[str, Any]


def columns(record: Record) -> Columns:
    """The record as JSON data."""
    steps = record.steps
    table = {field.name: [getattr(step, field.name) for step in steps] for field in fields(Step) if field.name != "id"}
    table |= {name: [[asdict(item) for item in row] for row in table[name]] for name in _nested() & set(table)}
    changes = [[at, asdict(change.speculation), change.tokens] for at, change in record.changes]
    return {"speculation": asdict(record.first), "steps": table, "changes": changes}


def record_of(data: Columns) -> Record:
    """The record that `columns` described.

    Raises:
        ValueError: it is no such data.
    """
    try:
        speculation = _speculation().validate_python(data["speculation"])
        changes = [(int(at), _speculation().validate_python(spec), int(n)) for at, spec, n in data["changes"]]
        table = data["steps"]
        rows = zip(*table.values(), strict=True) if table else iter(())
        steps = _steps().validate_python([{"id": 0, **dict(zip(table, row, strict=True))} for row in rows])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a recorded reply: {error}") from error
    if not all(0 <= n <= _MOST for s in steps for n in (s.drafted, s.tested, s.accepted, s.emitted)):
        raise ValueError("not a recorded reply: a step's tokens are out of range")
    record, offset = Record(speculation), 0
    for number, step in enumerate(steps):
        while changes and changes[0][0] <= number:
            _, changed, tokens = changes.pop(0)
            record.change(Changed(0, changed, tokens), offset)
        record.add(step, offset)
        offset += sum(len(clean(piece.text)) for piece in step.pieces)
    for _, changed, tokens in changes:
        record.change(Changed(0, changed, tokens), offset)
    return record


def pack(data: Columns) -> bytes:
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode(), _LEVEL)


def unpack(blob: bytes) -> Columns:
    """What `pack` was given.

    Raises:
        ValueError: these are other bytes.
    """
    try:
        data = json.loads(zlib.decompress(blob))
    except zlib.error as error:
        raise ValueError(f"not a recorded reply: {error}") from error
    return data if isinstance(data, dict) else {}


@cache
def _nested() -> set[str]:
    """Fields of a step that hold tuples of dataclasses."""
    return {field.name for field in fields(Step) if str(field.type).startswith("tuple")}


@cache
def _steps() -> "TypeAdapter[list[Step]]":
    from pydantic import TypeAdapter

    return TypeAdapter(list[Step])


@cache
def _speculation() -> "TypeAdapter[Speculation]":
    from pydantic import TypeAdapter

    return TypeAdapter(Speculation)
