"""Arguments of calls, piece by piece while a model writes them.

Only forms that hold them as a JSON object can be followed; a call that cannot be comes whole.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from specchat.engine.tool_calls.form import CallForm
from specchat.engine.tool_calls.parsing import ARGUMENT_KEYS, NAME_KEYS, ReadCall


@dataclass
class FollowedCall:
    """A call that is being written, its arguments in pieces that make strict JSON, or the beginning of it."""

    name: str
    id: str = ""
    pieces: list[str] = field(default_factory=list)
    told: int = -1
    """Pieces that were taken; -1 before the first time."""

    def take(self) -> str | None:
        """The arguments since the last time; None where there is nothing new."""
        if self.told == len(self.pieces):
            return None
        text, self.told = "".join(self.pieces[max(self.told, 0) :]), len(self.pieces)
        return text

    @property
    def arguments(self) -> str:
        """All of the arguments; empty while they are no JSON."""
        arguments = "".join(self.pieces)
        try:
            json.loads(arguments)
        except (ValueError, RecursionError):
            return ""
        return arguments


@dataclass
class _Level:
    """An object or a list that is open."""

    opened: str
    key: str = ""
    key_next: bool = True


@dataclass
class CallStream:
    """The calls between two marks, in a form; only those of tools in `names` are followed.

    Attributes:
        name: the function, where a header has named it.
        found: calls by their number between the marks.
        number: that of the last call; -1 before the first one.
        last_length: characters since the beginning of that call.
    """

    form: CallForm
    names: Collection[str]
    name: str = ""
    found: dict[int, FollowedCall] = field(default_factory=dict)
    number: int = -1
    last_length: int = 0
    _levels: list[_Level] = field(default_factory=list)
    _quoted: list[str] | None = None
    """Characters of the text that is open."""
    _escaped: bool = False
    _depth: int = 0
    """Levels around the arguments that are followed; 0 outside of any."""
    _header: str = ""
    """Text since the last call, where a name precedes an object."""
    _id: str = ""

    def feed(self, text: str) -> None:
        """Take more of what stands between the marks."""
        if self.form.kind not in ("object", "named", "channel") or self.form.keys.id:
            return
        for character in text:
            self.last_length += 1
            if self._quoted is not None:
                self._in_text(character)
            else:
                self._outside(character)

    def complete(self) -> list[ReadCall]:
        """The calls, where the arguments of all are complete: a mistake around them does no harm."""
        calls = [ReadCall(call.name, call.arguments) for call in self.found.values()]
        return calls if len(calls) == self.number + 1 and all(call.arguments for call in calls) else []

    def _in_text(self, character: str) -> None:
        assert self._quoted is not None
        # Models write line ends and tabs as they are.
        self._keep(character if character >= " " else json.dumps(character)[1:-1])
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._closed(_text("".join(self._quoted)))
            return
        self._quoted.append(character)

    def _closed(self, text: str) -> None:
        """A text ended: a key, or a value."""
        self._quoted = None
        level = self._levels[-1]
        if level.key_next:
            level.key = text
        elif self._names and level.key in (self.form.keys.name, *NAME_KEYS):
            self.name = text

    def _outside(self, character: str) -> None:
        if not self._levels and self.form.kind == "named":
            self._header += character
        if character == "{" or (character == "[" and (self._levels or self.form.kind == "object")):
            self._open(character)
        elif not self._levels:
            return
        elif character == '"':
            self._keep(character)
            self._quoted = []
        elif character in "}]":
            self._keep(character)
            self._close()
        else:
            self._keep(character)
            level = self._levels[-1]
            if character in ",:":
                level.key_next = level.opened == "{" and character == ","

    def _open(self, character: str) -> None:
        around = [level.opened for level in self._levels]
        if self.form.kind == "object":
            if character == "{" and around in ([], ["["]):
                self.number, self.name, self.last_length = self.number + 1, "", 1
            elif character == "{" and self._begins_arguments:
                self._begin()
        elif character == "{" and not around and self._named():
            self.number += 1
            self._begin()
        self._keep(character)
        self._levels.append(_Level(character, key_next=character == "{"))

    def _named(self) -> bool:
        """Take the name and the identifier from the text before an object; False where there is none."""
        if self.form.kind == "channel":
            return self.number < 0
        header, self._header = self._header, ""
        found = re.compile(self.form.name).search(header)
        if found is None:
            return False
        self.name, self._id = found["name"], found.groupdict().get("id") or ""
        self.last_length = len(header)
        return True

    @property
    def _names(self) -> bool:
        """True where a call's name and arguments stand: at its own level, or at that of its function."""
        inner = self._levels[1:] if self._levels and self._levels[0].opened == "[" else self._levels
        return len(inner) == 1 or (len(inner) == 2 and inner[0].key == "function")

    @property
    def _begins_arguments(self) -> bool:
        if self._depth or not self._names or self._levels[-1].opened != "{" or self.number in self.found:
            return False
        key = self._levels[-1].key
        if not self.form.keys.name:
            self.name = key
            return True
        return bool(self.name) and key in (self.form.keys.arguments, *ARGUMENT_KEYS)

    def _begin(self) -> None:
        if self.name in self.names:
            self.found[self.number] = FollowedCall(self.name, self._id)
            self._depth = len(self._levels) + 1

    def _keep(self, character: str) -> None:
        if self._depth:
            self.found[self.number].pieces.append(character)

    def _close(self) -> None:
        self._levels.pop()
        if self._depth and len(self._levels) < self._depth:
            self._depth = 0


def _text(written: str) -> str:
    """A text as JSON writes it, or as it stands where that is none."""
    try:
        return str(json.loads(f'"{written}"', strict=False))
    except ValueError:
        return written
