"""The two sides of pictures in a model: their rows, and a target that takes them."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor


class PictureRows(Protocol):
    """Rows in place of the embeddings of pictures' tokens (`album.py`)."""

    @property
    def deep(self) -> int:
        """Number of first layers after which rows are added to those of pictures."""
        ...

    def mutual(self, token: int) -> int:
        """Tokens of the picture that `token` begins, where these attend to each other; 0 for others."""
        ...

    def put(self, embedded: Tensor, tokens: Sequence[int] | Tensor) -> Tensor:
        """Embeddings float32 [rows, hidden] of `tokens` with the rows of pictures among them."""
        ...

    def add(self, x: Tensor, tokens: Sequence[int], layer: int) -> Tensor:
        """Hidden states float32 [rows, hidden] of `tokens` with what pictures add after `layer` layers."""
        ...


@runtime_checkable
class TakesRows(Protocol):
    """A target that takes rows in place of embeddings."""

    pictures: PictureRows | None

    @property
    def context(self) -> int:
        """Capacity of the cache in tokens."""
        ...

    def turn(self, first: int, places: Tensor) -> None:
        """Let the entries from `first` on turn by `places`, float32 [entries, width / 2], one for each rotation."""
        ...
