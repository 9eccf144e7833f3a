"""ctrl+z on a real terminal, and a stop from outside: the whole window is drawn again by fg."""

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.drivers.linux_driver import LinuxDriver

from specchat.tui.terminal import Terminal

PROGRAM = Path(__file__).with_name("logged_app.py")


def read_until(leader: int, words: str) -> None:
    """Read what is drawn until `words` are in it."""
    output, end = b"", time.monotonic() + 60
    while words.encode() not in output:
        assert time.monotonic() < end, output
        if select.select([leader], [], [], 0.1)[0]:
            output += os.read(leader, 1 << 16)


def read_until_stopped(leader: int, process: int) -> None:
    """Read on what is drawn until the program stops: it waits for the terminal to take all."""
    end = time.monotonic() + 60
    while not (stopped := os.waitpid(process, os.WUNTRACED | os.WNOHANG))[0]:
        assert time.monotonic() < end
        if select.select([leader], [], [], 0.1)[0]:
            os.read(leader, 1 << 16)
    assert os.WIFSTOPPED(stopped[1])


def read_until_ended(leader: int, process: "subprocess.Popen[bytes]") -> None:
    """Read on what is drawn until the program has ended."""
    end = time.monotonic() + 60
    while process.poll() is None:
        assert time.monotonic() < end
        if select.select([leader], [], [], 0.1)[0]:
            os.read(leader, 1 << 16)


@pytest.mark.parametrize("outside", [False, True], ids=["ctrl+z", "SIGSTOP"])
def test_the_whole_window_is_drawn_again_after_a_stop(outside: bool, tmp_path: Path) -> None:
    """And the app can be left, which gives the terminal back."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    before = termios.tcgetattr(follower)
    command = [sys.executable, str(PROGRAM), str(tmp_path / "chats.db"), str(log := os.open(os.devnull, os.O_WRONLY))]
    terminal = {"TERM": "xterm-256color", "LINES": "30", "COLUMNS": "120"}
    environment = os.environ | terminal | {"PYTHONPATH": str(PROGRAM.parents[2])}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, pass_fds=[log]
    )
    try:
        read_until(leader, "new chat")
        for _ in range(2):
            if outside:
                process.send_signal(signal.SIGSTOP)
            else:
                os.write(leader, b"\x1a")
            read_until_stopped(leader, process.pid)
            while select.select([leader], [], [], 0)[0]:
                os.read(leader, 1 << 16)
            process.send_signal(signal.SIGCONT)
            read_until(leader, "new chat")
        os.write(leader, b"\x11")
        read_until_ended(leader, process)
        assert process.returncode == 0
        assert termios.tcgetattr(follower) == before
    finally:
        process.kill()
        process.wait()
        for descriptor in (leader, follower, log):
            os.close(descriptor)


@pytest.mark.parametrize(("running", "leaving"), [(True, False), (True, True), (False, False)])
def test_only_an_app_that_stays_is_drawn_again(running: bool, leaving: bool) -> None:
    drawn: list[bool] = []
    terminal = object.__new__(Terminal)
    terminal._auto_restart, terminal._app = True, SimpleNamespace(_exit=leaving)  # type: ignore[assignment]
    terminal._must_signal_resume = True
    terminal.resume_application_mode = lambda: drawn.append(True)  # type: ignore[method-assign]

    async def go_on() -> None:
        terminal._sigcont_application(signal.SIGCONT, None)

    if running:
        asyncio.run(go_on())
    else:
        terminal._sigcont_application(signal.SIGCONT, None)
    assert drawn == [True] * (running and not leaving)


def test_a_signal_to_go_on_waits_for_what_the_app_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be writing, and hold the lock that drawing again takes."""
    drawn: list[bool] = []
    monkeypatch.setattr(LinuxDriver, "start_application_mode", lambda _: None)
    monkeypatch.setattr(Terminal, "_sigcont_application", lambda *_: drawn.append(True))

    async def go_on() -> None:
        object.__new__(Terminal).start_application_mode()
        os.kill(os.getpid(), signal.SIGCONT)
        assert not drawn
        async with asyncio.timeout(60):
            while not drawn:
                await asyncio.sleep(0)

    asyncio.run(go_on())
