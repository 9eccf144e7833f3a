"""A command in a process of its own, ended with all it started when its time is over."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from specchat.clean import clean


@dataclass(frozen=True)
class ChildExit:
    """Outcome of a process: `code` is None where its time was over; `output` is all it wrote, without control codes."""

    code: int | None
    seconds: float
    output: str


def run(command: Sequence[str], environment: Mapping[str, str], log: Path, limit_s: float) -> ChildExit:
    """Run `command` for at most `limit_s` seconds; `log` gets its output.

    Raises:
        OSError: it cannot be started.
    """
    started = perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                if os.name == "posix":
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
                process.wait()
    return ChildExit(code, perf_counter() - started, clean(log.read_text(encoding="utf-8", errors="replace")).rstrip())
