"""Ends of tunes that must lose nothing: a stop, and kills at random moments."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import Result

from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import ProgressLine

ROOT = Path(__file__).parents[2]


def interrupting(patch: pytest.MonkeyPatch, moment: str) -> None:
    """Press ctrl+c once the progress reaches a `moment`."""
    shown = ProgressLine.show

    def show(self: ProgressLine, what: str, fraction: float | None = None) -> None:
        shown(self, what, fraction)
        if what.startswith(moment):
            os.kill(os.getpid(), signal.SIGINT)

    patch.setattr(ProgressLine, "show", show)


def assert_a_stop_registers_nothing(
    run: Callable[[], Result], moment: str, toml: Path, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupt a tune when its progress begins with `moment`; then the same command ends well."""
    before = toml.read_bytes()
    with monkeypatch.context() as patch:
        interrupting(patch, moment)
        result = run()
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "The same command goes on from there." in result.stderr
    assert toml.read_bytes() == before
    assert not tuned.exists()
    assert run().exit_code == 0


def assert_kills_lose_nothing(command: Sequence[str], long: str, short: str, toml: Path, tuned: Path) -> None:
    """Kill a tune twenty times; `long` and `short` end its command where it is killed and where it is to end."""
    before, draw = toml.read_bytes(), random.Random(5)
    program = [sys.executable, "-m", "specchat", *command]
    for _ in range(20):
        process = subprocess.Popen([*program, long], cwd=ROOT, stderr=subprocess.DEVNULL)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0.5, 5.0))
        process.kill()
        process.wait()
        assert toml.read_bytes() == before
        assert not tuned.exists()
    assert subprocess.run([*program, short], cwd=ROOT, check=False).returncode == 0
