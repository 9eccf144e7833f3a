"""A piece of code as a process of bounded time and output."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Timer

from specchat.clean import clean
from specchat.sandbox.box import ENVIRONMENT, boxed

SECONDS = 10.0
OUTPUT = 64_000
"""Bytes that are read."""
LONGEST = 20_000
"""Characters of code."""
_PYTHON, _SHELL = ("python3", "-I", "-u", "-c"), ("sh", "-c")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("python", "python3", "py"), _PYTHON),
    **dict.fromkeys(("sh", "shell"), _SHELL),
    "bash": ("bash", "-c"),
}
"""Commands by the language that a code block names."""


class SandboxError(Exception):
    """The code is not run; says why in a sentence."""


@dataclass(frozen=True)
class Ran:
    """The output of a process, and the way it ended, in words."""

    output: str
    ending: str


def refusal(language: str, code: str) -> str:
    """A sentence on why code is not run; empty where it can be. Nothing hidden in it is run."""
    if language.lower() not in COMMANDS:
        return f"only Python and shell code is run, and this block is {clean(language)[:20] or 'of no language'}"
    if len(code) > LONGEST:
        return f"code of over {LONGEST:,} characters is not run"
    return "the code has characters that do not show: it is not run" if clean(code) != code else ""


def run(language: str, code: str, seconds: float = SECONDS) -> Ran:
    """Run code whose `refusal` is empty, apart from files and network; what it starts ends with it.

    Raises:
        SandboxError: nothing on this machine keeps code apart.
    """
    command = boxed([*COMMANDS[language.lower()], code])
    if command is None:
        raise SandboxError("nothing here keeps code from your files and the network: on Linux, install bubblewrap")
    begun = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(ENVIRONMENT),
        start_new_session=True,
    ) as process:
        assert process.stdout is not None

        def end() -> None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = Timer(seconds, end)
        timer.start()
        data = process.stdout.read(OUTPUT + 1)
        if len(data) > OUTPUT:
            end()
        status = process.wait()
        late = not timer.is_alive()
        timer.cancel()
    output = clean(data[:OUTPUT].decode("utf-8", "replace"))
    if len(data) > OUTPUT:
        return Ran(output, f"stopped after {OUTPUT // 1000} kB of output")
    if late:
        return Ran(output, f"stopped after {seconds:.0f} seconds")
    return Ran(output, f"exit code {status}, {time.monotonic() - begun:.1f} seconds")
