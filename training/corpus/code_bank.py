"""Small Python functions: what they do, their source, how they work and an example."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_TABLE = Path(__file__).with_name("functions.txt")
_SAID = Path(__file__).with_name("functions_said.txt")


@dataclass(frozen=True)
class Function:
    """One function, its parameter's other names, and what can be said about it."""

    goal: str
    source: str
    how: tuple[str, ...]
    example: str
    swap: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """The function's name."""
        return self.source.split("(")[0].removeprefix("def ").strip()


def _bank() -> tuple[Function, ...]:
    """The functions of functions.txt, blocks of goal, source, explanation, example, and a name with others for it."""
    found = []
    for block in _TABLE.read_text("utf-8").strip().split("\n\n\n"):
        head, source, tail = block.split("\n---\n")
        lines = tail.split("\n")
        old, _, new = lines[-1].partition(": ")
        found.append(Function(head, source, tuple(lines[:-2]), lines[-2], (old, new)))
    return tuple(found)


FUNCTIONS = _bank()
SAID = {
    name: tuple(orders.split("|"))
    for name, _, orders in (line.partition(": ") for line in _SAID.read_text("utf-8").splitlines())
}
"""For each function's name, what else people call its work."""
