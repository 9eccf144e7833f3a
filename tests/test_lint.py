"""The checks that are not tests run with them: style, types, and the direction of imports."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "ruff check": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "types": ("mypy",),
    "import contracts": ("lint-imports",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_clean(name: str) -> None:
    program, *arguments = COMMANDS[name]
    result = subprocess.run(
        [Path(sys.executable).parent / program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
