"""Mixtures of experts described to the compiled pass: a row of numbers each, and the buffers that they share."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from specchat.engine.memory.host_need import APART, mixture_need
from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.recipe import Experts, Norm, Recipe
from specchat.engine.strategy import resolved

(
    COUNT, TOP, RENORMALISED, SIGMOID, GROUPS, KEPT_GROUPS, SHARED_ROW, SHARED_GATE,
    BETWEEN, BESIDE, GATES, SHARES, CHOSEN, ORDER, ORDER_ROW, SUMS, SHARED_SUMS, INPUTS, SHARED_INPUTS,
    CORRECTION, FACTORS, ROUTER_NORM, PRE_EXPERTS, POST_EXPERTS, PRE_SHARED, POST_SHARED, CODE, FIELDS,
) = range(28)  # fmt: skip
"""Columns: sizes, truth values, addresses (0 for nothing), elements between those of two threads.

SHARED_ROW is the values of a row in the buffer BESIDE, 0 without a shared MLP. The norms are there if ROUTER_NORM is.
CODE is the address of the code.
"""


class Mixtures:
    """Descriptions of the mixtures of a model, which keep alive the buffers that they point to.

    Attributes:
        addresses: of each layer's description, int64 [FIELDS]; 0 for a layer without experts.
    """

    def __init__(self, recipe: Recipe, threads: int) -> None:
        """Describe the mixtures of `recipe`, for passes of up to `threads` threads; compile `experts.py` if any."""
        need = mixture_need(recipe, PREFILL_ROWS)
        self._between, self._beside = np.zeros(need.between, np.float32), np.zeros(need.beside, np.float32)
        self._gates, self._shares = np.zeros(need.gates, np.float32), np.zeros(need.pairs, np.float32)
        self._chosen, self._order = np.zeros(need.pairs, np.int64), np.zeros((threads, need.order), np.int64)
        one = PREFILL_ROWS * recipe.hidden
        self._wide = np.zeros(need.rows, np.float32).reshape(-1, one)
        self._layers = [layer.feed if isinstance(layer.feed, Experts) else None for layer in recipe.layers]
        self._factors: list[NDArray[np.float32]] = []
        self._rows = np.zeros((len(recipe.layers), FIELDS), np.int64)
        buffers = self._between, self._beside, self._gates, self._shares, self._chosen, self._order
        self.addresses: list[int] = []
        for row, mixture in zip(self._rows, self._layers, strict=True):
            if mixture:
                row[[COUNT, TOP]] = mixture.count, mixture.top
                row[[RENORMALISED, SIGMOID]] = mixture.renormalised, mixture.sigmoid
                row[[GROUPS, KEPT_GROUPS]] = mixture.groups
                row[SHARED_ROW] = 2 * LANES * panels_for(mixture.shared.width) if mixture.shared else 0
                row[SHARED_GATE] = mixture.shared_gate is not None
                row[BETWEEN : ORDER + 1] = [buffer.ctypes.data for buffer in buffers]
                row[ORDER_ROW], row[CODE] = need.order, resolved("specchat.engine.cpu.experts:ADDRESS")
                # Without norms of its own the shared MLP adds to the same sums.
                places = range(len(APART)) if mixture.apart else (0, 0)
                row[SUMS : SUMS + len(places)] = [self._wide[place].ctypes.data for place in places]
            self.addresses.append(row.ctypes.data if mixture else 0)

    def use(self, norms: Mapping[Norm, NDArray[np.float32]], vectors: Mapping[str, NDArray[np.float32]]) -> "Mixtures":
        """Point to the tensors of the layers, float32, which the caller keeps alive; return the mixtures."""
        for row, mixture in zip(self._rows, self._layers, strict=True):
            if mixture:
                row[CORRECTION] = vectors[mixture.correction].ctypes.data if mixture.correction else 0
                row[FACTORS] = vectors[mixture.factors].ctypes.data if mixture.factors else 0
            if mixture and mixture.factor != 1:
                own = vectors[mixture.factors] if mixture.factors else np.ones(mixture.count, np.float32)
                self._factors.append(own * np.float32(mixture.factor))
                row[FACTORS] = self._factors[-1].ctypes.data
            if mixture and mixture.apart:
                row[ROUTER_NORM : POST_SHARED + 1] = [norms[norm].ctypes.data for norm in mixture.apart.all]
        return self
