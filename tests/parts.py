"""Changes of values that hold their options in parts."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Value = TypeVar("Value")


def changed(value: Value, **changes: Any) -> Value:
    """A dataclass with changes of its fields, and of those of its parts that have other names."""
    own = {field.name for field in fields(value)}  # type: ignore[arg-type]
    for name in sorted(own - changes.keys()):
        part = getattr(value, name)
        if is_dataclass(part) and not isinstance(part, type):
            mine = {field.name for field in fields(part)} & changes.keys() - own
            if mine:
                changes[name] = replace(part, **{each: changes.pop(each) for each in mine})
    return replace(value, **changes)  # type: ignore[type-var]
