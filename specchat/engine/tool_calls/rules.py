"""Rules of a Lark grammar under way, for llguidance."""

import json
import re
from collections.abc import Mapping
from typing import Any

_PLAIN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
NAMING = ("$schema", "$id")
"""Keys that name a schema, or its dialect, and that nothing looks up here."""
ANY = "/(?s:.*)/"


def json_body(schema: Mapping[str, Any]) -> str:
    """The body of a rule for a JSON value by a schema, written as most models write it."""
    named = {key: value for key, value in schema.items() if key not in NAMING}
    return f"%json {json.dumps({'x-guidance': _PLAIN, **named})}"


class Rules:
    """Adds rules to a grammar. `marks` are tokens of marks, by their text."""

    def __init__(self, marks: Mapping[str, int]) -> None:
        self._marks = marks
        self._rules: list[str] = []

    def text(self, start: str) -> str:
        """The grammar that begins with `start`."""
        return "\n".join((f"start: {start}", *self._rules))

    def add(self, body: str, options: str = "") -> str:
        """A rule; gives back its name."""
        return self.set(self.name(), body, options)

    def name(self) -> str:
        """The name of a rule that is set later, because it refers to itself."""
        self._rules.append("")
        return f"r{len(self._rules) - 1}"

    def set(self, name: str, body: str, options: str = "") -> str:
        """Give a named rule its body; gives back the name."""
        self._rules[int(name[1:])] = f"{name}{options}: {body}"
        return name

    def literal(self, text: str) -> str:
        """A text, marks in it by number: no other spelling of them counts."""
        marks = "|".join(map(re.escape, sorted(self._marks, key=len, reverse=True)))
        parts = re.split(f"({marks})", text) if marks else [text]
        return " ".join(f"<[{self._marks[p]}]>" if p in self._marks else json.dumps(p) for p in parts if p)

    def json(self, schema: Mapping[str, Any]) -> str:
        """A rule for a JSON value by a schema."""
        return self.add(json_body(schema))

    def until(self, end: str, body: str = ANY) -> str:
        """A text that fulfils a regular expression, up to `end`, and that."""
        if any(end.strip().startswith(mark) for mark in self._marks):
            return f"{self.add(body)} {self.literal(end)}"
        return self.add(body, f"[suffix={json.dumps(end)}]")
