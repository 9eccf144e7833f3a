"""A table with a row for each token, as the compiled pass holds it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.cpu.packed import DENSE, Packed, look_up
from specchat.engine.cpu.primitives.records import PRODUCT
from specchat.engine.cpu.products.tiles import LISTED
from specchat.engine.formats.layout import FileRows, Table


class TokenTable:
    """The rows of tokens: dense as they are stored, or in blocks as the outputs of a product.

    Attributes:
        product: PRODUCT [1], whose rows `columns.row_reader` reads.
    """

    def __init__(self, table: Table | FileRows) -> None:
        """Copy the table.

        Raises:
            Unread: as `Packed.add`.
        """
        self._packed, self._dense = Packed(), None
        if isinstance(table, Tensor):
            self._dense, self.product = table.clone(), np.zeros(1, PRODUCT)
            self.product["form"], self.product["inputs"] = DENSE[table.dtype] | LISTED, table.shape[1]
            self.product["address"] = self._dense.data_ptr()
        else:
            self._packed.add(table)
            self.product = self._packed.table

    def rows(self, tokens: Sequence[int]) -> Tensor:
        """Rows float32 [tokens, values]."""
        if self._dense is None:
            return torch.from_numpy(look_up(self.product, tokens))
        return embedding(torch.tensor(tokens), self._dense).float()

    def memory(self) -> int:
        """Bytes held."""
        return self._packed.memory() if self._dense is None else self._dense.nbytes
