"""What an action does, beside what is told of it: the screen finds its verbs by id and need not know where they are."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Screen = TypeVar("Screen")


@dataclass(frozen=True)
class Verb(Generic[Screen]):
    """`run` does it; its text is what followed the slash command, empty otherwise."""

    run: Callable[[Screen, str], Awaitable[None] | None]
    values: Callable[[Screen], Sequence[tuple[str, str]]] | None = None
    """The arguments that can be completed, each with a word about it."""
