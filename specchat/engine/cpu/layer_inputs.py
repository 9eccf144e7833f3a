"""Inputs of each layer by token, described to the compiled pass, and the buffers of a pass."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.recipe import PerLayer
from specchat.engine.strategy import resolved

MAKE, ADD, PRODUCT, NORM, EPS, SIZE, WIDTH, EMBEDDED, ROWS, MADE, MADE_ROW, FIELDS = range(12)
"""Columns: addresses of the code, of a row of the table of products, of weights and of buffers, and sizes."""


class LayerInputs:
    """The inputs of a model's layers, which keeps alive what its description points to.

    Attributes:
        address: of the description, int64 [FIELDS].
    """

    def __init__(self, own: PerLayer, hidden: int, table: Tensor, product: int, norm: NDArray[np.float32]) -> None:
        """Describe `own`, for hidden states of `hidden` values; compile `per_layer.py`.

        `table` [tokens, width] is as stored, `product` the address of a row of the table of products.
        """
        self._table, self._scale = table, own.scale
        self._norm, self._eps = norm, np.array([own.norm.eps], np.float32)
        self._embedded = np.zeros((PREFILL_ROWS, hidden), np.float32)
        self._rows = np.zeros((PREFILL_ROWS, own.width), np.float32)
        self._made = np.zeros((PREFILL_ROWS, LANES * panels_for(own.width)), np.float32)
        addresses = [one.ctypes.data for one in (self._embedded, self._rows, self._made)]
        code = resolved("specchat.engine.cpu.per_layer:ADDRESSES")
        described = [*code, product, norm.ctypes.data, self._eps.ctypes.data, own.norm.size]
        self._description = np.array([*described, own.width, *addresses, self._made.shape[1]], np.int64)
        self.address = self._description.ctypes.data

    def put(self, tokens: Sequence[int], embedded: Tensor) -> None:
        """Keep the tokens of a pass, with their embeddings float32 [tokens, hidden]."""
        known = torch.tensor([min(token, len(self._table) - 1) for token in tokens])
        self._rows[: len(tokens)] = embedding(known, self._table).float().mul_(self._scale).numpy()
        self._embedded[: len(tokens), : embedded.shape[1]] = embedded.numpy()
