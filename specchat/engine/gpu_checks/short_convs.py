"""A layer with a short convolution, and torch's own convolution."""

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.place import filled, number
from specchat.engine.gpu_checks.states import TextLayer
from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.short_conv import short_conv

CHANNELS, TAPS, TOKENS = 2 * 280, 3, 120
"""Halves of more than one program, the last of which is not full."""
RING = 96
"""Entries that are held of as many positions and more."""


class ShortConvLayer(TextLayer):
    """A convolution with the first product of each of TOKENS tokens; its cache begins as NaN."""

    def __init__(self, dtype: torch.dtype, held: int = RING, capacity: int = 4 * RING) -> None:
        super().__init__(TOKENS, dtype)
        self.products, self.weights = (
            place.random(2, TOKENS, 3 * CHANNELS, seed=0),
            place.random(CHANNELS, 1, TAPS, seed=1),
        )
        self.keys, self.values = (filled(1, held, CHANNELS // 2, dtype=dtype) for _ in range(2))
        self._capacity = capacity

    def run(
        self,
        tokens: list[int],
        start: int,
        length: int | None = None,
        masks: Tensor | None = None,
        skip: Tensor | None = None,
    ) -> Tensor:
        out, partials = filled(PASS_ROWS, CHANNELS, dtype=self.dtype), self._of(self.products, tokens)
        first, text = number(start), number(start if length is None else length)
        entries, at = KvEntries(self.keys, self.values), RowPlaces(text, masks, skip)
        short_conv(partials, self.weights, first, at, entries, out, len(tokens), self._capacity)
        return self._checked(out, len(tokens))

    def reference(self, tokens: list[int]) -> Tensor:
        before, after, z = self.products[:, tokens].double().sum(0).chunk(3, -1)
        given = pad((before * z).to(self.dtype).double().T, (TAPS - 1, 0))
        return after * conv1d(given[None], self.weights.double(), groups=CHANNELS)[0].T
