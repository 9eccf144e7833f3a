"""Layers of Gated DeltaNet described to the compiled pass: a row of numbers each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.memory.state_need import SLOTS, width
from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.model.state_log import StateLog
from specchat.engine.recipe import LENGTH_EPS as ADDED
from specchat.engine.recipe import Delta, Layer, Norm
from specchat.engine.strategy import resolved

(
    KEY_HEADS, SHARING, KEY_DIM, VALUE_DIM, TAPS, CHANNELS, MIXED, GATES, STATES, ENTRIES, ENTRY, HELD, POSITIONS,
    WEIGHTS, RATES, SHIFTS, QUERY_LENGTH, KEY_LENGTH, LENGTH_EPS, NORM, CODE, FIELDS,
) = range(22)  # fmt: skip
"""Columns: sizes, and addresses.

MIXED are the outputs of the first product with its padding, after which those of the gates follow; GATES is the row of
their product. STATES, ENTRIES and POSITIONS are of `StateLog`, HELD entries of ENTRY values for each key head. WEIGHTS
are the convolution's, float32 [key_heads, taps, inputs of a key head]; RATES and SHIFTS float32 [value_heads] in whole
vectors; QUERY_LENGTH and KEY_LENGTH weights of norms that make lengths, LENGTH_EPS their eps; NORM that of value heads.
"""
Floats = NDArray[np.float32]


class Deltas:
    """Descriptions of the recurrent layers of a model, which keep alive the arrays that they point to.

    Attributes:
        addresses: of each layer's description, int64 [FIELDS]; 0 for a layer with attention.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        table: NDArray[np.int64],
        norms: Mapping[Norm, Floats],
        vectors: Mapping[str, Floats],
        logs: Sequence[StateLog | None],
    ) -> None:
        """Describe `layers`, whose products have the first rows of `table`; compile `delta.py` if any is recurrent."""
        self._rows = np.zeros((len(layers), FIELDS), np.int64)
        self._kept: list[NDArray[Any]] = [table]
        self.addresses: list[int] = []
        last = 0
        for row, layer, log in zip(self._rows, layers, logs, strict=True):
            last += len(layer.products)
            if isinstance(layer.mixer, Delta) and log is not None:
                self._describe(row, layer.mixer, norms, vectors, log)
                row[GATES], row[CODE] = table[last - 1].ctypes.data, resolved("specchat.engine.cpu.delta:ADDRESS")
            self.addresses.append(row.ctypes.data if row[KEY_HEADS] else 0)

    def _describe(
        self,
        row: NDArray[np.int64],
        delta: Delta,
        norms: Mapping[Norm, Floats],
        vectors: Mapping[str, Floats],
        log: StateLog,
    ) -> None:
        row[[KEY_HEADS, SHARING, KEY_DIM, VALUE_DIM]] = delta.key_heads, delta.sharing, delta.key_dim, delta.value_dim
        row[[TAPS, CHANNELS, ENTRY, HELD]] = delta.taps, delta.channels, width(delta), SLOTS
        row[MIXED] = LANES * panels_for(sum(delta.mix.outputs))
        row[[STATES, ENTRIES, POSITIONS]] = log.states.data_ptr(), log.entries.data_ptr(), log.positions.ctypes.data
        keys = delta.key_heads * delta.key_dim
        taps = vectors[delta.convolution][:, 0].T
        kinds = [kind.reshape(delta.taps, delta.key_heads, -1) for kind in np.split(taps, [keys, 2 * keys], 1)]
        of_keys = np.full(delta.key_dim, delta.key_dim**-0.5, np.float32)
        row[WEIGHTS] = self._address(np.concatenate(kinds, 2).transpose(1, 0, 2))
        row[RATES], row[SHIFTS] = (
            self._address(np.pad(values, (0, -delta.value_heads % LANES)))
            for values in (np.exp(vectors[delta.decay]), vectors[delta.shift])
        )
        row[QUERY_LENGTH], row[KEY_LENGTH] = self._address(of_keys * delta.key_dim**-0.5), self._address(of_keys)
        row[LENGTH_EPS] = self._address(np.array([ADDED / delta.key_dim]))
        row[NORM] = self._address(norms[delta.norm])

    def _address(self, values: NDArray[Any]) -> int:
        self._kept.append(np.ascontiguousarray(values, np.float32))
        return self._kept[-1].ctypes.data
