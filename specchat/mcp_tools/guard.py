"""The process between specchat and a server that it runs: it ends with either of them, and a flood ends it.

It is started as a file of its own, and imports the standard library alone. Usage: guard.py COMMAND [ARGUMENT ...]
"""

import os
import re
import select
import signal
import subprocess
import sys
import threading

GRACE_S = 1.0
"""Seconds that the server has to end by itself once its input is closed."""
MOST_BYTES = 4 << 20
MOST_LINES = 5_000
"""Output of the server at most since the last message to it."""
TAIL_BYTES = 4096
"""The end of its standard error, passed on once it has ended."""
_ESCAPE = re.compile(rb"(?is)\\(?:ud[89ab]..\\ud[c-f]..|(?P<half>ud[89a-f]..)|.)")
_CHUNK = 1 << 16
_PIPE = 4096
"""Bytes that a pipe which can be written to has room for."""


class ServerGuard:
    """Passes on what client and server write to each other."""

    def __init__(self, command: list[str]) -> None:
        """Start the server.

        Raises:
            OSError: it cannot be started.
        """
        pipe = subprocess.PIPE
        self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        self._tail = b""
        self._bytes = self._lines = 0
        self._errors = threading.Thread(target=self._read_errors, daemon=True)

    def run(self) -> str:
        """Pass on until the server ends, or the client does; gives its last words, or why it was ended."""
        self._errors.start()
        threading.Thread(target=self._pass_requests, daemon=True).start()
        flooded = self._pass_answers()
        if flooded:
            return flooded
        self._errors.join(GRACE_S)
        return self._tail.decode("utf-8", "replace")

    def _pass_requests(self) -> None:
        assert self._server.stdin is not None
        try:
            while data := os.read(0, _PIPE):
                self._bytes = self._lines = 0
                wait_for(self._server.stdin.fileno())
                write(self._server.stdin.fileno(), data)
        except OSError:
            pass  # one of them is gone
        try:
            self._server.stdin.close()
            self._server.wait(GRACE_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        end_all(self._server)

    def _pass_answers(self) -> str:
        """Pass on the server's output by lines; gives a sentence where it is a flood."""
        assert self._server.stdout is not None
        begun = b""
        try:
            while data := os.read(self._server.stdout.fileno(), _CHUNK):
                self._bytes += len(data)
                self._lines += data.count(b"\n")
                if self._bytes > MOST_BYTES:
                    return f"It wrote more than {MOST_BYTES >> 20} MB without being asked for so much."
                if self._lines > MOST_LINES:
                    return f"It wrote more than {MOST_LINES:,} messages without being asked for so many."
                lines, end, rest = data.rpartition(b"\n")
                if end:
                    write(1, whole(begun + lines + end))
                    begun = b""
                begun += rest
            write(1, whole(begun))
        except OSError:
            pass  # the client is gone
        return ""

    def _read_errors(self) -> None:
        assert self._server.stderr is not None
        try:
            while data := os.read(self._server.stderr.fileno(), _CHUNK):
                self._tail = (self._tail + data)[-TAIL_BYTES:]
        except OSError:
            pass

    def end(self) -> None:
        """End the server and what it started."""
        end_all(self._server)


def whole(json: bytes) -> bytes:
    """JSON with U+FFFD for halves of surrogate pairs, for which clients refuse a message."""
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found["half"] else found[0], json)


def wait_for(server: int) -> None:
    """Return once the server reads from the pipe `server`: one that hangs must not keep this process from ending.

    Raises:
        OSError: the client is gone.
    """
    if not hasattr(select, "poll"):
        return
    poll = select.poll()
    poll.register(server, select.POLLOUT)
    poll.register(0, 0)
    while server not in (ready := dict(poll.poll())):
        if 0 in ready:
            raise BrokenPipeError


def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`.

    Raises:
        OSError: nobody reads it any more.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def end_all(server: "subprocess.Popen[bytes]") -> None:
    """End the server, its children and this process with them, where they are a group of their own."""
    if hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    server.kill()
    os._exit(1)


def main(command: list[str]) -> None:
    """Run a server until it or the client ends."""
    try:
        guard = ServerGuard(command)
    except OSError as error:
        write(2, f"{command[0]} cannot be started ({error.strerror}).".encode())
        sys.exit(127)
    words = guard.run()
    try:
        write(2, words.encode())
    finally:
        guard.end()


if __name__ == "__main__":
    main(sys.argv[1:])
