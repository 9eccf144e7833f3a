"""Messages and commands read line by line from standard input."""

import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem
from specchat.reading import TOO_LONG, TYPED_BYTES

PROMPT = "> "
QUOTES = '"""'
LONGEST = 1023 if sys.platform == "darwin" else 4095
"""Bytes of a line that a terminal passes on; it drops the rest."""
_SLICE_S = 0.25


@dataclass(frozen=True)
class TypedLine:
    """A message, or a command with its slash; `is_cut` where the terminal dropped a part of it."""

    text: str
    is_command: bool = False
    is_cut: bool = False


class Lines:
    """Standard input as entries: a line each, a line that ends in a backslash goes on, triple quotes hold many lines.

    On a terminal each line has a prompt before it.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._is_cut = False
        self._read = 0
        """Bytes of the entry so far."""
        self._screen = sys.stdout if sys.stdout is not None and sys.stdout.isatty() else sys.stderr

    def entries(self) -> Iterator[TypedLine]:
        """Until the input ends.

        Raises:
            Problem: what is piped in is not UTF-8 text, or an entry is over TYPED_BYTES.
        """
        while (line := self._line()) is not None:
            if line.startswith(QUOTES):
                text = self._quoted(line.removeprefix(QUOTES))
            elif line.startswith("/"):
                yield TypedLine(line.strip(), is_command=True)
                self._read = 0
                continue
            else:
                text = self._continued(line)
            if text.strip():
                yield TypedLine(text, is_cut=self._is_cut)
            self._is_cut, self._read = False, 0

    def answer(self) -> str:
        """The next line, which answers a question; empty at the end."""
        return (self._line() or "").strip()

    def _continued(self, line: str) -> str:
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1].removesuffix("\\")
            if (more := self._line()) is None:
                break
            lines.append(more)
        return "\n".join(lines)

    def _quoted(self, first: str) -> str:
        lines = [first] if first else []
        while not (lines and lines[-1].endswith(QUOTES)):
            if (more := self._line()) is None:
                break
            lines.append(more)
        return "\n".join(lines).removesuffix(QUOTES).removesuffix("\n")

    def _line(self) -> str | None:
        if sys.stdin is None:
            return None
        self._show(PROMPT)
        try:
            self._wait()
            data = sys.stdin.buffer.readline(TYPED_BYTES - self._read + 1)
        except KeyboardInterrupt:
            self._show("\n")
            raise
        if not data:
            self._show("\n")
            return None
        self._read += len(data)
        if self._read > TYPED_BYTES:
            raise Problem(TOO_LONG, ExitCode.USAGE)
        if self.is_terminal and sys.platform != "win32" and len(data.rstrip(b"\n")) >= LONGEST:
            self._is_cut = True
        try:
            text = data.decode("utf-8-sig", errors="replace" if self.is_terminal else "strict")
        except UnicodeDecodeError:
            raise Problem(
                "Standard input is not UTF-8 text. Convert it first, for example with iconv.", ExitCode.USAGE
            ) from None
        return text.rstrip("\r\n")

    def _wait(self) -> None:
        """Until a line was typed. In slices: a ctrl+c that comes just before a read begins does not end the read."""
        if self.is_terminal and sys.platform != "win32":
            while not select.select([sys.stdin], [], [], _SLICE_S)[0]:
                pass

    def _show(self, text: str) -> None:
        if self.is_terminal and self._screen is not None and self._screen.isatty():
            self._screen.write(text)
            self._screen.flush()
