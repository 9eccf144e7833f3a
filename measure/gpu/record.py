"""Runs parts one after the other, each in its own process, and records the progress in a folder.

A part that passed does not run again; all others do, whatever failed before.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from specchat.doctor import child

LIMIT_S = 540.0
"""Nine minutes: machines are lent for ten at a time."""
TAIL_LINES = 40
"""Lines of output that are shown and stored if a part fails."""
State = Literal["passed", "failed", "out of time", "skipped"]
BAD: tuple[State, ...] = ("failed", "out of time")


@dataclass(frozen=True)
class Part:
    """A command to run. In it and in `environment`, "{out}" is the part's folder and "{root}" that of all parts.

    Without the program `needs` the part is skipped. `fresh` is a folder below the root that is emptied before.
    """

    name: str
    about: str
    command: tuple[str, ...]
    needs: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    fresh: str = ""


@dataclass(frozen=True)
class Outcome:
    """Result of a part; `tail` has the last lines of its output."""

    state: State
    command: str
    seconds: float = 0.0
    code: int | None = None
    tail: str = ""


class OtherCommit(Exception):
    """The folder holds results of another commit."""


class Record:
    """Results of the parts in `root`."""

    def __init__(self, root: Path, parts: Sequence[Part], versions: Mapping[str, str], commit: str) -> None:
        """Open the record; `versions` of programs and hardware accompany every fault.

        Raises:
            OtherCommit: the results in `root` are of another `commit`.
        """
        self.root, self.parts, self.versions, self.commit = root, parts, versions, commit
        root.mkdir(parents=True, exist_ok=True)
        self._file = root / "summary.json"
        self.outcomes: dict[str, Outcome] = {}
        if self._file.exists():
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            if kept.get("commit") != commit:
                raise OtherCommit(kept.get("commit") or "an unknown one")
            self.outcomes = {name: Outcome(**outcome) for name, outcome in kept["parts"].items()}

    def left(self) -> list[Part]:
        """Parts that have not passed yet, in order."""
        return [part for part in self.parts if self._state(part) != "passed"]

    def bad(self) -> list[Part]:
        """Parts that ran and did not pass, in order."""
        return [part for part in self.parts if self._state(part) in BAD]

    def _state(self, part: Part) -> State | None:
        return self.outcomes[part.name].state if part.name in self.outcomes else None

    def run(self, part: Part, limit_s: float = LIMIT_S) -> Outcome:
        """Run one part and record its result."""
        out = self.root / part.name
        out.mkdir(exist_ok=True)
        places = {"{out}": str(out), "{root}": str(self.root), "{python}": sys.executable}
        command = [_filled(word, places) for word in part.command]
        if part.fresh:
            shutil.rmtree(self.root / part.fresh, ignore_errors=True)
        if part.needs and shutil.which(part.needs) is None:
            outcome = Outcome("skipped", shlex.join(command), tail=f"{part.needs} is not on PATH")
        else:
            extra = {name: _filled(value, places) for name, value in part.environment.items()}
            outcome = _ran(command, os.environ | extra, out / "output.log", limit_s)
        self.outcomes[part.name] = outcome
        self._write()
        return outcome

    def trouble(self, part: Part) -> str:
        """Report of a failed part: command, last output, versions."""
        outcome = self.outcomes[part.name]
        ended = f"ended with exit code {outcome.code}" if outcome.state == "failed" else f"is {outcome.state}"
        versions = "\n".join(f"  {name}: {value}" for name, value in self.versions.items())
        return (
            f"{part.name} ({part.about}) {ended} after {outcome.seconds:.0f} s.\n\n  {outcome.command}\n\n"
            f"{outcome.tail}\n\n{versions}\n\nAll of its output: {self.root / part.name / 'output.log'}\n"
        )

    def _write(self) -> None:
        kept = {
            "commit": self.commit,
            "versions": dict(self.versions),
            "parts": {p.name: asdict(self.outcomes[p.name]) for p in self.parts if p.name in self.outcomes},
        }
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self._file)
        (self.root / "summary.md").write_text(self.table(), encoding="utf-8")

    def table(self) -> str:
        """Versions, parts and their tables as Markdown."""
        about = {"commit": self.commit, **self.versions}
        lines = ["# The developer's hour on a GPU", "", *(f"- {name}: {value}" for name, value in about.items()), ""]
        lines += ["| part | | s | |", "|---|---|---|---|"]
        for part in self.parts:
            outcome = self.outcomes.get(part.name)
            state, seconds = (outcome.state, f"{outcome.seconds:.0f}") if outcome else ("to do", "")
            lines.append(f"| {part.name} | {state} | {seconds} | {part.about} |")
        for part in self.parts:
            for table in sorted((self.root / part.name).glob("*.md")):
                lines += ["", f"## {part.name}: {table.stem}", "", table.read_text(encoding="utf-8").strip()]
        return "\n".join(lines) + "\n"


def run_all(record: Record, report: Callable[[str], None], limit_s: float = LIMIT_S) -> None:
    """Run all remaining parts, whatever fails."""
    for part in record.left():
        report(f"{part.name}: {part.about}")
        outcome = record.run(part, limit_s)
        report(
            f"  {outcome.state}, {outcome.seconds:.0f} s" + (f": {outcome.tail}" if outcome.state == "skipped" else "")
        )


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(name, value)
    return word


def _ran(command: list[str], environment: Mapping[str, str], log: Path, limit_s: float) -> Outcome:
    shown = shlex.join(command)
    try:
        ended = child.run(command, environment, log, limit_s)
    except OSError as error:
        return Outcome("failed", shown, tail=str(error))
    state: State = "out of time" if ended.code is None else "failed" if ended.code else "passed"
    tail = "\n".join(ended.output.splitlines()[-TAIL_LINES:])
    return Outcome(state, shown, ended.seconds, ended.code, tail if state != "passed" else "")
