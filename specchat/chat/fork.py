"""Siblings of a tree, one of which is shown."""

import secrets
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Fork(Generic[T]):
    """Items oldest first; the newest is shown unless another was chosen."""

    __slots__ = ("_items", "_shown")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._shown = -1

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __getitem__(self, index: int) -> T:
        return self._items[index]

    @property
    def shown(self) -> T | None:
        return self._items[self._shown] if self._items else None

    @property
    def number(self) -> int:
        """Number of the shown one, counted from 1; 0 when there is none."""
        return self._shown + 1 if self._items else 0

    def add(self, item: T) -> None:
        """Append an item and show it."""
        self._items.append(item)
        self._shown = len(self._items) - 1

    def drop(self, item: T) -> None:
        """Take an item out; its neighbour is shown if it was."""
        self._items.remove(item)
        self._shown = min(self._shown, len(self._items) - 1)

    def show(self, item: T) -> None:
        self._shown = self._items.index(item)

    def beside(self, step: int) -> T | None:
        """The item `step` places from the shown one, None beyond the ends."""
        at = self._shown + step
        return self._items[at] if self._items and 0 <= at < len(self._items) else None


def new_key() -> str:
    """An identifier that two running copies of specchat never share; later ones sort later."""
    return f"{int(time.time() * 1000):012x}{secrets.token_hex(6)}"
