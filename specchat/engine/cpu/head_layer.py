"""A head's layer over rows that follow each other by the compiled pass: what `reference/layer.py` computes, sooner.

One thread runs it: what takes long enough for several is left to torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from specchat.engine.cpu import passes
from specchat.engine.cpu.descriptors import Descriptors, pass_spans
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.passes import GATE_UP
from specchat.engine.cpu.products import PANELS, kernels_of
from specchat.engine.cpu.together import LINE
from specchat.engine.memory.vectors import FEW, LANES, attention_room
from specchat.engine.model.rows import TILE
from specchat.engine.model.tree_layout import chain
from specchat.engine.recipe import Layer, Norm

_layers: Any = passes.layers


class CompiledLayer:
    """Packed weights and buffers of a layer; its caller owns the KV cache."""

    def __init__(
        self,
        layer: Layer,
        products: Sequence[tuple[Tensor, Tensor | None]],
        norms: Mapping[Norm, Tensor],
        cache: tuple[Tensor, Tensor],
        rope: tuple[Tensor, Tensor],
    ) -> None:
        """Pack `layer`.

        Args:
            products: matrix float32 [outputs, inputs] and bias of each of its products.
            norms: the weight of each of its norms, float32 [size].
            cache: keys and values float32 [kv_heads, capacity, head_dim], the capacity a multiple of four.
            rope: cos and sin float32 [capacity, head_dim].
        """
        self._packed = Packed()
        for index, (matrix, bias) in enumerate(products):
            self._packed.add(matrix, bias, (len(matrix) // 2,) if index == GATE_UP else ())
        table, self._extras = self._packed.table, self._packed.extras
        self._kernels = kernels_of(table)
        hidden, (_, capacity, size) = len(products[-1][0]), cache[0].shape
        weights = {norm: weight.numpy() for norm, weight in norms.items()}
        arrays, turns = ((one.numpy(), other.numpy()) for one, other in (cache, rope))
        self._descriptors = Descriptors([layer], table, weights, [arrays], [turns], {})
        self._parts = np.ones((1, 2), np.bool_)
        self._wide = np.zeros((TILE, LANES * int(table[:, PANELS].max())), np.float32)
        self._own = np.zeros((1, 2, TILE, max(hidden, FEW * LANES)), np.float32)
        self._scores = np.zeros((1, attention_room(capacity, size)), np.float32)
        self._no_states = np.full(2, -1), np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.float32)
        self._counters = np.zeros(6 * LINE, np.int64)
        self._layouts = [pass_spans(chain(max(1, rows))) for rows in range(TILE + 1)]

    def __call__(self, inputs: Tensor, residual: Tensor, start: int) -> Tensor:
        """Run the layer over 1 to TILE rows float32 [rows, inputs] from position `start` on; attend to all before.

        Returns:
            `residual` plus the layer's output, float32 [rows, hidden].
        """
        made, given = residual.clone(), inputs.contiguous()
        layout = self._layouts[len(given)]
        passed = self.layer_args(given.data_ptr())
        _layers(made.numpy(), len(given), start, layout.spans, layout.ancestors, *passed, 0, 1)
        return made

    def layer_args(self, given: int) -> tuple[Any, ...]:
        """Arguments of `passes.layers` after its rows, with the inputs of the attention at address `given`."""
        return (
            -1,
            self._descriptors.integers,
            self._descriptors.floats,
            self._kernels,
            self._extras,
            self._parts,
            self._wide,
            self._own,
            self._scores,
            given,
            *self._no_states,
            self._counters,
        )

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()
