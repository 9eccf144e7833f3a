"""Progress and results as JSON lines, for programs that run a long command."""

from time import monotonic
from typing import Any

from specchat.cli.output import Output, ProgressLine, json_text

EVERY_S = 0.2
"""Seconds between two lines about the same phase at least."""


class JsonLines(ProgressLine):
    """A line of JSON on standard output for each report: its `kind` is "progress", "note" or "result"."""

    def __init__(self) -> None:
        super().__init__()
        self._output = Output()
        self._facts: dict[str, Any] = {}
        self._changed = True
        self._written = 0.0

    def know(self, **facts: Any) -> None:
        self._changed |= any(self._facts.get(name) != value for name, value in facts.items())
        self._facts |= facts

    def show(self, what: str, fraction: float | None = None) -> None:
        now = monotonic()
        if self._changed or now - self._written >= EVERY_S:
            self._changed, self._written = False, now
            self._write("progress", what=what, fraction=fraction, **self._facts)

    def clear(self) -> None:
        """Nothing: lines stay."""

    def line(self, text: str) -> None:
        self._write("note", text=text)

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def result(self, **fields: Any) -> None:
        """Report the outcome, as the last line."""
        self._write("result", **fields)

    def _write(self, kind: str, **fields: Any) -> None:
        self._output.write(json_text({"kind": kind, **fields}, ensure_ascii=False) + "\n")
