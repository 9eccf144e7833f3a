"""Inputs of each layer by token, described to the compiled pass, and the buffers of a pass."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.primitives.records import INPUTS, Structure
from specchat.engine.cpu.token_table import TokenTable
from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.recipe import PerLayer


class LayerInputs:
    """The inputs of a model's layers by token.

    Attributes:
        record: their INPUTS.
        size: values of an input.
    """

    def __init__(
        self, inputs: PerLayer, hidden: int, table: TokenTable, product: int, norm: NDArray[np.float32]
    ) -> None:
        """Describe `inputs`, for hidden states of `hidden` values.

        Rows of `table` have `width` values, `product` is the address of a PRODUCT.
        """
        self._of, self._table, self.size = inputs, table, inputs.norm.size
        self._embedded = np.zeros((PREFILL_ROWS, hidden), np.float32)
        self._rows = np.zeros((PREFILL_ROWS, inputs.width), np.float32)
        row = LANES * panels_for(inputs.width)
        self.record = Structure(
            INPUTS,
            product=product,
            norm=norm,
            eps=inputs.norm.eps,
            size=self.size,
            width=inputs.width,
            embedded=self._embedded,
            rows=self._rows,
            made=np.zeros((PREFILL_ROWS, row), np.float32),
            made_row=row,
        )

    def put(self, tokens: Sequence[int], embedded: Tensor) -> None:
        """Keep the tokens of a pass, with their embeddings float32 [tokens, hidden]."""
        rows = self._table.rows([self._of.row(token) for token in tokens])
        self._rows[: len(tokens)] = rows.mul_(self._of.scale).numpy()
        self._embedded[: len(tokens), : embedded.shape[1]] = embedded.numpy()
