"""Mixtures of experts described to the compiled pass: a row of numbers each, and the buffers that they share."""

from collections.abc import Callable

import numpy as np

from specchat.engine.model.mixture_need import mixture_need
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.recipe import Experts, Recipe

COUNT, TOP, RENORMALISED, BETWEEN, SUMS, SHARES, CHOSEN, ORDER, ORDER_ROW, CODE, FIELDS = range(11)
"""Columns: sizes, a truth value, addresses of buffers, elements between those of two threads, address of the code."""


class Mixtures:
    """Descriptions of the mixtures of a model, which keep alive the buffers that they point to.

    Attributes:
        addresses: of each layer's description, int64 [FIELDS]; 0 for a layer without experts.
    """

    def __init__(self, recipe: Recipe, threads: int, code: Callable[[], int]) -> None:
        """Describe the mixtures of `recipe`, for passes of up to `threads` threads.

        `code` compiles `experts.experts` and returns its address; it is called where there are experts.
        """
        need = mixture_need(recipe, PREFILL_ROWS)
        self._between, self._sums = np.zeros(need.between, np.float32), np.zeros(need.sums, np.float32)
        self._shares, self._chosen = np.zeros(need.pairs, np.float32), np.zeros(need.pairs, np.int64)
        self._order = np.zeros((threads, need.order), np.int64)
        self._rows = np.zeros((len(recipe.layers), FIELDS), np.int64)
        buffers = self._between, self._sums, self._shares, self._chosen, self._order
        self.addresses: list[int] = []
        for row, layer in zip(self._rows, recipe.layers, strict=True):
            if isinstance(layer.feed, Experts):
                row[[COUNT, TOP, RENORMALISED]] = layer.feed.count, layer.feed.top, layer.feed.renormalised
                row[BETWEEN : ORDER + 1] = [buffer.ctypes.data for buffer in buffers]
                row[ORDER_ROW], row[CODE] = need.order, code()
            self.addresses.append(row.ctypes.data if row[COUNT] else 0)
