"""Short convolutions described to the compiled pass: a row of numbers each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.recipe import Layer, ShortConv
from specchat.engine.strategy import resolved

TAPS, HALF, WEIGHTS, CODE, FIELDS = range(5)
"""Columns: sizes, HALF of them the channels of a key, and addresses. WEIGHTS are float32 [taps, channels]."""


class ShortConvs:
    """Descriptions of a model's short convolutions, which keep alive the arrays that they point to.

    Attributes:
        addresses: of each layer's description, int64 [FIELDS]; 0 for a layer without.
    """

    def __init__(self, layers: Sequence[Layer], vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Describe `layers`; `vectors` are their tensors by name. Compile `short_conv.py` if any is such a layer."""
        self._kept: list[NDArray[Any]] = []
        self.addresses: list[int] = []
        for mixer in (layer.mixer for layer in layers):
            if isinstance(mixer, ShortConv):
                weights = np.ascontiguousarray(vectors[mixer.convolution][:, 0].T)
                code = resolved("specchat.engine.cpu.short_conv:ADDRESS")
                row = np.array([mixer.taps, mixer.head_dim, weights.ctypes.data, code])
                self._kept += weights, row
                self.addresses.append(row.ctypes.data)
            else:
                self.addresses.append(0)
