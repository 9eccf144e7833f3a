"""The worker by itself, spoken to over its standard streams."""

import subprocess
import sys
from pathlib import Path

from specchat.engine import wire
from specchat.engine.api import Generate, Load, Loading, Message, Shutdown, Started
from tests.process.conftest import PAIR, PATIENCE_S, SCRIPTED

COMMAND = [sys.executable, "-c", f"from specchat.engine.worker import main; main({SCRIPTED!r}, 'its log')"]
ROOT = Path(__file__).parents[2]


def test_shutdown_ends_it_in_the_middle_of_a_step() -> None:
    with subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        wire.write(worker.stdin, Load(PAIR))
        wire.write(worker.stdin, Generate(1, (Message("user", "stuck"),)))
        events = wire.read(worker.stdout)
        assert next(events) == Loading("starting the engine")
        assert any(isinstance(event, Started) for event in events)
        wire.write(worker.stdin, Shutdown())
        assert worker.wait(PATIENCE_S) == 0


def test_it_ends_when_nobody_reads_its_events() -> None:
    with subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        next(wire.read(worker.stdout))
        worker.stdout.close()
        wire.write(worker.stdin, Load(PAIR))
        assert worker.wait(PATIENCE_S) == 0
