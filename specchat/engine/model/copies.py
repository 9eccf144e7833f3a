"""Entries and tails: the contents of a cache, as they are copied out of it and back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class CacheEntries(NamedTuple):
    """Tensors [any, positions, any] of a cache, views of all of it: the entry of token p is at position p - `shift`.

    An entry depends on its token and those before it alone.
    """

    tensors: Sequence[Tensor]
    shift: int = 0

    def of(self, first: int, last: int) -> list[Tensor]:
        """Views of the entries of tokens first, ..., last - 1."""
        places = slice(max(0, first - self.shift), max(0, last - self.shift))
        return [tensor[:, places] for tensor in self.tensors]


PIECE = 64 << 20
"""Bytes that are copied at a time."""


def copy_parts(into: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    """Copy views of entries, in pieces: torch holds what is not contiguous twice on a GPU that it goes to or from."""
    for to, part in zip(into, source, strict=True):
        rows = max(1, PIECE // max(1, part[:1].nbytes))
        for piece, copied in zip(to.split(rows), part.split(rows), strict=True):
            piece.copy_(copied)


class Tail(NamedTuple):
    """Windows and recurrent states, from which a text goes on at its end, beside entries by position.

    Only the model that made it knows what `tensors` and `numbers` mean.
    """

    tensors: Sequence[Tensor]
    numbers: tuple[int, ...]


class CopiedCache(ABC):
    """A model whose cache can be copied out and back. One that is not simply reads again."""

    @abstractmethod
    def entries(self) -> CacheEntries:
        """The cache's entries by position."""

    def tail(self, held: int) -> Tail | None:
        """Return the tail of its text of `held` tokens, views; None for a model with entries by position alone."""
        return None

    def reach(self, length: int, held: int, tail: Tail | None) -> int:
        """The most tokens, up to `length`, after which a text may go on from `tail`, or None: from the cache as it is.

        The text had `held` tokens.
        """
        return length

    def resume(self, token_ids: Sequence[int], held: int, tail: Tail | None) -> None:  # noqa: B027
        """Take over `tail`, of a text of `held` tokens, and that the entries are those of `token_ids`."""
