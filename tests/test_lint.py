"""The checks that are not tests run with them: style and the direction of imports. CI has a step for types."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "ruff check": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "import contracts": ("lint-imports",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_clean(name: str) -> None:
    program, *arguments = COMMANDS[name]
    result = subprocess.run(
        [Path(sys.executable).parent / program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


def test_a_class_name_stands_once() -> None:
    """Those within other classes bear the name of these besides."""
    found = Counter(
        node.name
        for path in (ROOT / "specchat").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, times in found.items() if times > 1} == set()
