"""The map in CONTRIBUTING.md is true."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"( *)([\w./]+)")


def mapped() -> Iterator[str]:
    """The paths of the tree, each below the folder whose line is indented less."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    above: list[tuple[int, str]] = []
    for line in text.split("```")[1].splitlines():
        if found := LINE.match(line):
            depth = len(found[1])
            above = [(indent, folder) for indent, folder in above if indent < depth]
            above.append((depth, found[2]))
            yield "".join(name for _, name in above)


@pytest.mark.parametrize("path", mapped())
def test_every_path_of_the_map_is_there(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


def test_every_part_of_the_package_is_in_the_map() -> None:
    packages = [*(ROOT / "specchat").glob("*/__init__.py"), *(ROOT / "specchat/engine").glob("*/__init__.py")]
    assert {f"{path.parent.relative_to(ROOT)}/" for path in packages} <= set(mapped())
