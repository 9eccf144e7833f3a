"""Sizes of what chat templates make, counted before it takes memory."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import jinja2
from jinja2.utils import Namespace

MOST_CHARACTERS = 50_000_000
"""Limit of a text in characters, or of a list in items, that one operation makes."""
LIST_SIZE, ITEM_SIZE = 64, 8
"""Size of a list and of an item of it, in characters of as much memory."""
_WIDTH = re.compile(r"\d{6}|\*|:[^{}]*\{")
"""A width in a format that no prompt needs."""


class TemplateBoundError(jinja2.TemplateError):
    """A template takes more time or memory than a chat needs."""


def check_size(size: int, most: int = MOST_CHARACTERS) -> None:
    if size > most:
        raise TemplateBoundError("it makes too long a text")


def unit_size(value: Any) -> int:
    return 1 if isinstance(value, str) else ITEM_SIZE


def weight_of(value: Any) -> int:
    """Characters of a value as text, about, counted up to the limit. What is nested weighs more, as JSON indents it."""
    weight, left = 0, [(value, 1)]
    while left and weight <= MOST_CHARACTERS:
        one, depth = left.pop()
        if isinstance(one, str):
            weight += len(one)
        elif isinstance(one, int):
            weight += one.bit_length()
        elif isinstance(one, dict | list | tuple | Namespace):
            inner = getattr(one, "_Namespace__attrs") if isinstance(one, Namespace) else one  # noqa: B009
            weight += LIST_SIZE + ITEM_SIZE * depth * len(inner)
            if weight <= MOST_CHARACTERS:
                left += [(part, depth + 1) for part in inner]
                left += [(part, depth + 1) for part in inner.values()] if isinstance(inner, dict) else []
    return weight


def formatted_size(form: str, *values: Any, **named: Any) -> int:
    """Size of a text by a format.

    Raises:
        TemplateBoundError: a width is too large, or a value.
    """
    if _WIDTH.search(form):
        raise TemplateBoundError("it makes too long a text")
    widths = sum(map(int, re.findall(r"\d+", form)))
    return len(form) + widths + len(re.findall("[%{]", form)) * weight_of((values, named))


def replaced_size(text: str, old: str = "", new: str = "", *_: Any) -> int:
    return len(text) + text.count(old) * len(new)


def joined_size(text: str, values: Iterable[str] = ()) -> int:
    return sum(len(text) + len(one) for one in values)


METHOD_SIZES: dict[str, Callable[..., int]] = {"replace": replaced_size, "join": joined_size, "format": formatted_size}
"""Characters that a method of a text makes, by its name."""
