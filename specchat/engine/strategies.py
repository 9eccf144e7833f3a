"""The list of strategies, found in the files of `drafters/`, without torch."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args

from specchat.engine.strategy import MAX_DRAFT_LENGTH, Group, HeadFamily, Strategy


def found(package: str = "specchat.engine.drafters") -> dict[str, Strategy]:
    """The strategies in the modules of a package, by group and name."""
    names = [f"{package}.{module.name}" for module in iter_modules(import_module(package).__path__)]
    values = (value for name in names for value in vars(import_module(name)).values() if isinstance(value, Strategy))
    order = get_args(Group)
    return {one.name: one for one in sorted(values, key=lambda one: (order.index(one.group), one.name))}


STRATEGIES = found()

HEADS: dict[str, HeadFamily] = {one.head.name: one.head for one in STRATEGIES.values() if one.head is not None}
"""The families of trained heads that a pair may name."""
HEADED = tuple(name for name, one in STRATEGIES.items() if one.head is not None)
"""The strategies that draft by trained heads."""


SERVER = "server"
"""Names the drafts of a server elsewhere, in steps and replies; nobody can choose it."""
GRAMMAR = "grammar"
"""Names the drafts of tokens that a grammar forces, in steps; nobody can choose it."""


def delegates(strategy: str) -> bool:
    """True where a strategy delegates to others, which its steps report."""
    return strategy in STRATEGIES and STRATEGIES[strategy].group == "auto"


def begins_verify(strategy: str) -> bool:
    """True where drafting does a part of verifying."""
    return strategy in STRATEGIES and STRATEGIES[strategy].begins_verify


def in_group(group: Group) -> Iterator[str]:
    """The names of the strategies of a group."""
    return (name for name, one in STRATEGIES.items() if one.group == group)


def labelled(strategy: str, draft_length: int, acceptance: str = "coupled") -> str:
    """`draft x5`, `plain`, `lookup x8 ratio`; `auto` shows a length only where it is limited."""
    chooses = not draft_length or (strategy == "auto" and draft_length == MAX_DRAFT_LENGTH)
    length = "" if chooses else f" x{draft_length}"
    return strategy + length + ("" if acceptance == "coupled" else f" {acceptance}")
