"""A table with a row for each token, as the compiled pass holds it."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.cpu.packed import Packed, look_up
from specchat.engine.formats.layout import FileRows, Table


class TokenTable:
    """The rows of tokens: dense as they are stored, or in blocks as the outputs of a product.

    Attributes:
        tokens: their number.
    """

    def __init__(self, table: Table | FileRows) -> None:
        """Copy the table.

        Raises:
            Unread: as `Packed.add`.
        """
        self.tokens, self._packed = table.shape[0], Packed()
        self._dense = table.clone() if isinstance(table, Tensor) else None
        if not isinstance(table, Tensor):
            self._packed.add(table)

    def rows(self, tokens: Sequence[int]) -> Tensor:
        """Rows float32 [tokens, values]."""
        if self._dense is None:
            return torch.from_numpy(look_up(self._packed.table, tokens))
        return embedding(torch.tensor(tokens), self._dense).float()

    def memory(self) -> int:
        """Bytes held."""
        return self._packed.memory() if self._dense is None else self._dense.nbytes
