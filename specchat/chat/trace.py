"""A reply's record as bytes: one column a field of its steps, as compressed JSON.

What a step holds several of stands in columns of its own, all steps' one after the other, with how many each step has:
checking and building 30,000 steps takes a fraction of a second that way.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, fields
from functools import cache, partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from specchat.chat.record import Record
from specchat.clean import clean
from specchat.engine.protocol.events import Changed, Drafted, Piece, PlainKnown, Step
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.step_tree import StepTree

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_LEVEL = 3
_MOST = 1 << 16
"""Tokens of a step; no drafter comes near it."""
_SEVERAL = {"pieces": Piece, "drafts": Drafted, "call_pieces": Piece, "plain_known": PlainKnown}
"""Fields of a step that hold any number of these."""
_RARE = ("call_pieces", "plain_known")
"""Fields that are left out if no step has any of them."""
_ELSEWHERE = {"id", "tool_calls", "call_deltas", "logprobs", "together"}
"""Fields that are not recorded, the first and the last ones.

A reply keeps its calls itself, log-probabilities are for one client, and how many shared a pass for its figures.
"""
_COUNTS = "in_step"
_PARENT = "parent"
_DEFAULTS: tuple[tuple[str, object], ...] = (
    ("position", None),
    ("reasoning", False),
    ("mark", False),
    (_PARENT, None),
)
"""Columns that are left out where nothing else stands in them nor in those before, from the last field on."""
Columns = dict[str, Any]
Row = TypeVar("Row")


def columns(record: Record) -> Columns:
    """The record as JSON data."""
    table = _table(Step, record.steps)
    for name in _SEVERAL:
        rows = table[name]
        counts = {_COUNTS: [len(row) for row in rows]}
        table[name] = counts | _table(_SEVERAL[name], [item for row in rows for item in row])
    for name in _SEVERAL:
        _drop_defaults(table[name])
    for name in _RARE:
        if not any(table[name][_COUNTS]):
            del table[name]
    changes = [[at, asdict(change.speculation), change.tokens] for at, change in record.changes]
    return {"speculation": asdict(record.first), "steps": table, "changes": changes}


def record_of(data: Columns, start: int = 0) -> Record:
    """The record that `columns` described, of a reply whose first step began after `start` characters of its text.

    Raises:
        ValueError: it is no such data.
    """
    try:
        speculation = _adapter(Speculation).validate_python(data["speculation"])
        changes = [(int(at), _adapter(Speculation).validate_python(spec), int(n)) for at, spec, n in data["changes"]]
        several = {name: _in_steps(_SEVERAL[name], data["steps"][name]) for name in _SEVERAL if name in data["steps"]}
        single = _checked(Step, {name: column for name, column in data["steps"].items() if name not in _SEVERAL})
        steps = _rows(Step, partial(Step, 0), single | several)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a recorded reply: {error}") from error
    if not all(0 <= n <= _MOST for s in steps for n in (s.drafted, s.tested, s.accepted, s.emitted)):
        raise ValueError("not a recorded reply: a step's tokens are out of range")
    if _PARENT in data["steps"]["drafts"]:
        _check_trees(steps)
    record, offset = Record(speculation), start
    for number, step in enumerate(steps):
        while changes and changes[0][0] <= number:
            _, changed, tokens = changes.pop(0)
            record.change(Changed(0, changed, tokens), offset)
        record.add(step, offset)
        offset += sum(len(clean(piece.text)) for piece in step.pieces)
    for _, changed, tokens in changes:
        record.change(Changed(0, changed, tokens), offset)
    return record


def _drop_defaults(table: Columns) -> None:
    for name, value in _DEFAULTS:
        if name in table:
            if any(item != value for item in table[name]):
                return
            del table[name]


def _check_trees(steps: Sequence[Step]) -> None:
    for step in steps:
        try:
            StepTree.of(step.drafts)
        except ValueError as error:
            raise ValueError(f"not a recorded reply: {error}") from None


def pack(data: Columns) -> bytes:
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode(), _LEVEL)


def unpack(blob: bytes) -> Columns:
    """The columns that `pack` was given.

    Raises:
        ValueError: these are other bytes.
    """
    try:
        data = json.loads(zlib.decompress(blob))
    except zlib.error as error:
        raise ValueError(f"not a recorded reply: {error}") from error
    return data if isinstance(data, dict) else {}


def _names(kind: type) -> list[str]:
    """Values of the kept fields, in the order in which `kind` takes them."""
    return [field.name for field in fields(kind) if field.name not in _ELSEWHERE]


def _table(kind: type, rows: Sequence[object]) -> Columns:
    return {name: [getattr(row, name) for row in rows] for name in _names(kind)}


def _checked(kind: type, table: Columns) -> Columns:
    hints = get_type_hints(kind)
    return {name: _adapter(list[hints[name]]).validate_python(table[name]) for name in table}  # type: ignore[valid-type]


def _rows(kind: type, make: Callable[..., Row], table: Columns) -> list[Row]:
    """One of `kind` from each row of the columns; fields without a column have their defaults."""
    usual = {field.name: field.default for field in fields(kind) if field.name not in _ELSEWHERE}
    lengths = {len(column) for column in table.values()}
    lacking = [name for name, value in usual.items() if name not in table and value is MISSING]
    if lacking or not set(table) <= set(usual) or len(lengths) != 1:
        raise ValueError("not a recorded reply: columns that do not fit together")
    ordered = [table[name] if name in table else repeat(value, *lengths) for name, value in usual.items()]
    return [make(*row) for row in zip(*ordered, strict=True)]


def _in_steps(kind: type, table: Columns) -> list[tuple[Any, ...]]:
    """The items of each step."""
    counts = _adapter(list[int]).validate_python(table[_COUNTS])
    table = {name: column for name, column in table.items() if name != _COUNTS}
    items: list[object] = _rows(kind, kind, _checked(kind, table))
    if min(counts, default=0) < 0 or sum(counts) != len(items):
        raise ValueError("not a recorded reply: columns of different lengths")
    rest = iter(items)
    return [tuple(islice(rest, count)) for count in counts]


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
