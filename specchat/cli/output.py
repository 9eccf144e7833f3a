"""The output of commands: results to standard output, everything else to standard error."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from io import TextIOWrapper
from math import isfinite
from typing import Any, ParamSpec, TextIO, TypeVar

import click

from specchat.clean import clean, one_line
from specchat.cli.exit_codes import BY_KIND, ExitCode
from specchat.engine.errors import EngineError, ErrorKind
from specchat.engine.protocol.events import Loading

P = ParamSpec("P")
R = TypeVar("R")


class Problem(click.ClickException):
    """A sentence for the user and the exit code that goes with it."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(clean(message))
        self.exit_code = code  # type: ignore[misc]

    @classmethod
    def of(cls, kind: ErrorKind, message: str) -> "Problem":
        return cls(message, BY_KIND[kind])


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Have a command report an EngineError by its sentence, with its exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except EngineError as error:
            raise Problem.of(error.kind, error.message) from None

    return run


class Output:
    """Standard output for results. On a terminal control codes are taken out; a pipe or file gets UTF-8 as it is.

    File names of other encodings are written as they are. Where standard output is closed, nothing is written.
    """

    def __init__(self) -> None:
        self._stream: TextIO | None = sys.stdout
        self.is_terminal = self._stream is not None and self._stream.isatty()
        if isinstance(self._stream, TextIOWrapper):
            if self.is_terminal:
                self._stream.reconfigure(errors="replace")
            else:
                self._stream.reconfigure(encoding="utf-8", errors="surrogateescape")

    def write(self, text: str) -> None:
        """Write and flush.

        Raises:
            BrokenPipeError: nobody reads any more.
            Problem: it cannot be written, as to a full disk.
        """
        self.draw(clean(text) if self.is_terminal else text)

    def write_json(self, value: object) -> None:
        """Write a value as indented JSON; raises as `write` does."""
        self.write(json_text(value, indent=2) + "\n")

    def draw(self, text: str) -> None:
        """Write and flush text that may hold codes for the terminal; nobody else's text may come this way.

        Raises:
            BrokenPipeError: nobody reads any more.
            Problem: it cannot be written.
        """
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Problem(f"Standard output cannot be written ({error.strerror}).", ExitCode.USAGE) from None


def json_text(value: object, **how: Any) -> str:
    """A value as JSON, written as `how` tells `json.dumps`; infinite numbers, which JSON lacks, are null."""
    return json.dumps(_finite(value), **how)


def _finite(value: object) -> object:
    match value:
        case float():
            return value if isfinite(value) else None
        case Mapping():
            return {key: _finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
    return value


def on_terminal(text: str) -> None:
    """Write text to standard error where that is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(clean(text), err=True, nl=False)


class ProgressLine:
    """One line on standard error that is written over; only notes where that is no terminal."""

    def __init__(self) -> None:
        self._shown = False
        self._on = sys.stderr is not None and sys.stderr.isatty()

    def show(self, what: str, fraction: float | None = None) -> None:
        if self._on:
            percent = "" if fraction is None else f" {fraction:.0%}"
            room = shutil.get_terminal_size().columns - len(percent) - 1
            sys.stderr.write(f"\r\x1b[K{one_line(what, max(8, room))}{percent}")
            sys.stderr.flush()
            self._shown = True

    def loading(self, at: Loading) -> None:
        self.show(at.what, at.fraction)

    def know(self, **facts: Any) -> None:
        """Take in facts for programs that follow the progress; people are not shown them."""

    def result(self, **fields: Any) -> None:
        """Take in the outcome for such programs."""

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False

    def line(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        if self._on:
            click.echo(clean(text), err=True)

    def note(self, text: str) -> None:
        """A line that nobody should miss, terminal or not."""
        self.clear()
        click.echo(clean(text), err=True)
