"""What each command imports: help needs neither torch nor textual, `ask` keeps torch in the engine process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from specchat.cli.root import COMMANDS

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "tokenizers", "numpy", "textual", "pydantic"}
RUN = """
import sys
from functools import partial
from specchat.cli import main
from specchat.engine.process import client
from specchat.resident import shared
client.EngineClient = partial(client.EngineClient, loader="tests.process.scripted:load")
shared.open_engine = partial(shared.open_engine, loader="tests.process.scripted:load")
sys.argv = ["specchat", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def modules(*arguments: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert result.returncode == 0, result.stderr
    return set(result.stderr.splitlines()[-1].split())


def imported(*arguments: str) -> set[str]:
    return modules(*arguments) & HEAVY


@pytest.mark.parametrize("command", [[], ["ask"], ["check"], ["doctor"], ["models"], ["paths"]])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    assert imported(*command, "--help") == set()


def test_asking_needs_neither_torch_nor_textual() -> None:
    assert imported("ask", "hello") == set()


def test_a_chat_by_lines_needs_neither_torch_nor_textual() -> None:
    assert imported("--plain") == set()


def test_the_doctor_needs_neither_torch_nor_textual() -> None:
    assert imported("doctor", "--engine") == {"pydantic"}  # which reads what others wrote


def test_paths_needs_nothing_and_imports_no_other_command() -> None:
    others = {f"specchat.cli.{name}" for name in COMMANDS if name not in ("paths", "completion")}
    assert modules("paths") & (others | HEAVY | {"specchat.cli.plain"}) == set()


STARTING = """
import gc
import sys
from specchat.cli import app, main
from specchat.resident import shared

def open_engine(*_):
    assert gc.get_freeze_count() and not gc.isenabled()
    print(*(name for name in sys.modules if "." not in name))
    raise SystemExit

shared.open_engine = open_engine
app._terminal = lambda: True
sys.argv = ["specchat"]
main()
"""


def test_the_engine_starts_before_the_app_is_imported_without_collections() -> None:
    result = subprocess.run([sys.executable, "-c", STARTING], cwd=ROOT, capture_output=True, text=True)
    assert "tomllib" in result.stdout.split(), result.stderr
    assert not {"textual", "pydantic"} & set(result.stdout.split())


QUIET = """
from specchat.cli.root import specchat
specchat.main(["paths", "--json"], standalone_mode=False)
import torch
from specchat.engine.model.rows import _half
_half(torch.zeros(4, 4), None)
"""


def test_torch_says_nothing_of_its_own_plans_among_the_lines_of_a_command() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}
    result = subprocess.run([sys.executable, "-c", QUIET], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
