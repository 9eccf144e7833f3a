"""The app is left at once, whatever its threads wait for."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from specchat.tui.errands import Errands

LEFT = """
import sys
sys.path.insert(0, sys.argv[1])
from asyncio import sleep
from threading import Event
from conftest import make_app
from tests.fake import FakeEngine
app = make_app(FakeEngine(("No.",)))

begun = Event()

def wait():
    begun.set()
    Event().wait()

async def leave(pilot):
    app.run_worker(wait, thread=True)
    while not begun.is_set():
        await sleep(0.01)
    app.exit()

app.run(headless=True, size=(80, 24), auto_pilot=leave)
print("left")
"""


def test_an_app_is_left_while_a_thread_waits_for_ever() -> None:
    command = [sys.executable, "-c", LEFT, str(Path(__file__).parent)]
    assert "left" in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


async def test_results_and_errors_come_back() -> None:
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(Errands(), sum, [1, 2]) == 3
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(Errands(), divmod, 1, 0)
