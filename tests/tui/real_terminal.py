"""The specchat command in a real terminal, tmux's."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.models.made import own_ollama

COMMAND = Path(sys.executable).with_name("specchat")
PATIENCE_S = 180

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A terminal of tmux's server `name`; `environment` is that of what runs in it."""

    def __init__(self, name: str, environment: Mapping[str, str], size: tuple[int, int]) -> None:
        self._name, self._starts = name, 0
        self._environment = {**os.environ, "TERM": "xterm-256color", **environment}
        self._size = size

    @property
    def home(self) -> Path:
        """The folder with the files of its specchat."""
        return Path(self._environment["SPECCHAT_HOME"])

    def run(self, *arguments: str) -> str:
        """Give tmux a command; returns what that prints."""
        made = subprocess.run(
            ["tmux", "-L", f"{self._name}-{self._starts}", "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=20,
        )
        return made.stdout

    def specchat(self, *arguments: str) -> str:
        """Run a command beside the terminal; returns its output."""
        made = subprocess.run(
            [str(COMMAND), *arguments], capture_output=True, text=True, env=self._environment, timeout=PATIENCE_S
        )
        return made.stdout + made.stderr

    def start(self, arguments: str = "") -> None:
        """Start the app in a new terminal, which says how it was left."""
        self._starts += 1  # a server of its own: one that is ending takes no session
        width, height = map(str, self._size)
        command = f"{COMMAND} {arguments}; echo left with $?; cat"
        self.run("new-session", "-d", "-s", "app", "-x", width, "-y", height, command)

    def press(self, *keys: str) -> None:
        self.run("send-keys", "-t", "app", *keys)

    def shown(self) -> str:
        return self.run("capture-pane", "-p", "-t", "app")

    def until(self, *patterns: str) -> str:
        """Wait until all of these regular expressions are found in what is shown, which is returned."""
        end = time.monotonic() + PATIENCE_S
        while not all(re.search(pattern, (shown := self.shown())) for pattern in patterns):
            assert time.monotonic() < end, f"not all of {patterns} are in\n{shown}"
            time.sleep(0.1)
        return shown

    def leave(self) -> None:
        """Quit the app, and close the terminal."""
        self.press("C-q")
        self.until("left with 0")
        self.close()

    def close(self) -> None:
        self.run("kill-server")


@contextmanager
def terminal(size: tuple[int, int] = (80, 24), **environment: str) -> Iterator[Terminal]:
    """A terminal whose specchat has all its files in a folder of its own; its engine ends with it."""
    if not COMMAND.exists():
        pytest.skip("the specchat command is not installed")
    # The path of a socket has 108 characters at most, and a test's own folder some 90.
    with TemporaryDirectory(prefix="specchat-") as folder:
        places = {"SPECCHAT_HOME": folder, "SPECCHAT_ENGINE_MINUTES": "5"}
        places |= own_ollama(Path(environment.get("HOME", folder)))
        made = Terminal(f"specchat-test-{os.getpid()}", {**places, **environment}, size)
        try:
            yield made
        finally:
            made.close()
            made.specchat("engine", "stop")
