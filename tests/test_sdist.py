"""The source distribution has what its tests import and read."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
READ = re.compile(r"(?:\bROOT|parents\[[12]\]) / \"([\w-][\w.-]*)")


def needed(path: Path) -> Iterator[str]:
    """What a test takes from beside the folder of tests: packages and files."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
    yield from READ.findall(source)


def test_what_tests_take_from_the_checkout_is_in_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = set(settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]) | {"pyproject.toml"}
    taken = {name for path in (ROOT / "tests").rglob("*.py") for name in needed(path)}
    there = {name for name in taken if (ROOT / name).exists()}
    assert {"measure", "training", "screenshots"} <= there
    assert there <= included
