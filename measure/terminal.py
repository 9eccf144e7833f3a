"""Runs a program in a pseudo-terminal of 120x36, and reads its output."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[PX^_].*?\x1b\\|.)", re.S)


class Terminal:
    """Runs this Python with `arguments`, and `environment` added to its own."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.started = perf_counter()
        whole = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
        for name in ("COLUMNS", "LINES"):  # would override the size set here
            whole.pop(name, None)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, *arguments], whole)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
        self.seen = b""

    def read(self, seconds: float) -> bool:
        """Read the next output within `seconds`; False once the program has ended."""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 1 << 16)
            except OSError:
                return False
        return True

    def wait(self, pattern: str, timeout: float = 60.0, *, keep: bool = False) -> re.Match[str]:
        """Wait until the plain text since the last wait matches; unless `keep`, drop that text then."""
        begun = perf_counter()
        while perf_counter() - begun < timeout:
            running = self.read(0.002)
            if match := re.search(pattern, self.text()):
                self.seen = self.seen if keep else b""
                return match
            if not running:
                break
        raise TimeoutError(f"{pattern!r} did not show within {timeout} s; last: {self.text()[-500:]!r}")

    def watch(self, seconds: float) -> bool:
        """Let the program run and drop its output; False once it has ended."""
        end = perf_counter() + seconds
        while (left := end - perf_counter()) > 0:
            if not self.read(left):
                return False
            self.seen = b""
        return True

    def text(self) -> str:
        return ESCAPES.sub(b"", self.seen).decode("utf-8", "replace")

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def close(self) -> None:
        with suppress(OSError):
            self.type("\x11")
            while self.watch(1.0):
                pass
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def processor_s(pid: int) -> float:
    """Processor seconds of a process without its children; on Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
