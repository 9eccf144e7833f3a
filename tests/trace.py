"""Recorded engine events: a JSON object per line, `{"event": "Step", ...its fields}`.

An event of another client's reply is one within one: `{"event": "Elsewhere", "of": {"event": "Step", ...}}`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TextIO, get_args

from pydantic import TypeAdapter, ValidationError

from specchat.engine.protocol.events import Changed, Elsewhere, Event, Failed, Finished, Loaded, Started, Step
from specchat.engine.protocol.step_tree import StepTree

_RENAMED = {
    "vocab_size": "target_vocabulary",
    "template": "template_habits",
    "system_role": "template_system_role",
    "tools": "template_tools",
    **{name: f"load_{name}" for name in ("device", "gpu", "memory")},
    **{name: f"notes_{name}" for name in ("exactness", "note", "warning")},
    "server": "server_name",
    "continues": "server_continues",
}
_TYPES: dict[str, type[Any]] = {event.__name__: event for event in get_args(Event)}


class TraceError(ValueError):
    """A line that is no event; the message shows it."""


def dump(event: Event) -> str:
    """The event as one line of JSON, without the newline."""
    return json.dumps(_fields(event), default=bytes.decode)


def _fields(event: Event) -> dict[str, Any]:
    within = {"of": _fields(event.event)} if isinstance(event, Elsewhere) else asdict(event)
    return {"event": type(event).__name__, **within}


def parse(line: str) -> Event:
    """Parse a line of `dump`.

    Raises:
        TraceError: the line is no event.
    """
    try:
        return _event(json.loads(line))
    except (ValueError, KeyError, AttributeError, TypeError, ValidationError) as error:
        raise TraceError(f"not an engine event: {line[:80]!r}") from error


def _event(fields: dict[str, Any]) -> Event:
    name = fields.pop("event")
    if name == Elsewhere.__name__:
        fields = {"event": _event(fields.pop("of")), **fields}
    if name == Loaded.__name__ and not isinstance(fields["info"].get("load"), dict):
        fields["info"] = _grouped(fields["info"])
    event: Event = _adapter(name).validate_python(fields)
    if isinstance(event, Step):
        StepTree.of(event.drafts)
    return event


def _grouped(info: dict[str, Any]) -> dict[str, Any]:
    """The facts of a `PairInfo` in its groups; earlier traces have them side by side."""
    found: dict[str, Any] = {}
    for name, value in info.items():
        group, _, fact = _RENAMED.get(name, name).partition("_")
        if fact and group in ("load", "notes", "server", "target", "draft", "plain", "template"):
            found.setdefault(group, {})[fact] = value
        else:
            found[name] = value
    return found


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_TYPES[name])


def write(stream: TextIO, events: Iterable[Event]) -> None:
    """Append events to a stream."""
    for event in events:
        stream.write(dump(event) + "\n")


def read(path: Path) -> Iterator[Event]:
    """The events of a recorded file.

    Raises:
        OSError: the file cannot be read.
        TraceError: a line is no event.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield parse(line)
            except TraceError as error:
                raise TraceError(f"{path}, line {number}: {error}") from error


def replies(events: Iterable[Event]) -> list[tuple[Event, ...]]:
    """Replies of a trace, each from Started to Finished or Failed, for `fake.FakeEngine`."""
    found: list[tuple[Event, ...]] = []
    running: list[Event] = []
    for event in events:
        match event:
            case Started():
                running = [event]
            case Step() | Changed() if running:
                running.append(event)
            case Finished() | Failed() if running:
                found.append((*running, event))
                running = []
    return found
