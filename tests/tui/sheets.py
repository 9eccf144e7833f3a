"""Stylesheets read once a process: each app would read the same ones anew, and again for every dialog.

A widget's rules are looked up in sets, hundreds at a time, so that their hash matters too.
"""

from typing import Any

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

READ: dict[tuple[object, ...], list[RuleSet]] = {}
"""The rules of a sheet, by what they follow from: the theme's variables, and all that `_parse_rules` is given."""

read = Stylesheet._parse_rules


def read_once(sheet: Stylesheet, *place: Any, **named: Any) -> list[RuleSet]:
    """`Stylesheet._parse_rules`, from memory where it can be."""
    key = (frozenset(sheet._variables.items()), place, tuple(named.items()))
    if key not in READ:
        READ[key] = read(sheet, *place, **named)
    return READ[key]


def install() -> None:
    """Let every sheet be read so, and rules be hashed as any object is, which theirs do in Python a million times."""
    Stylesheet._parse_rules = read_once  # type: ignore[method-assign]
    RuleSet.__hash__ = object.__hash__  # type: ignore[method-assign]
