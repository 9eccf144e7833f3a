"""A head's layer over rows that follow each other by the compiled pass: what `heads/layer.py` computes, sooner.

One thread runs it: what takes long enough for several is left to torch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu import passes
from specchat.engine.cpu.layout import laid_out
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.passes import GATE_UP
from specchat.engine.cpu.products import PANELS, kernels_of
from specchat.engine.cpu.together import LINE
from specchat.engine.model.rows import TILE
from specchat.engine.model.runs import chain
from specchat.engine.model.vectors import FEW, LANES, attention_room

Floats = NDArray[np.float32]
_layers: Any = passes.layers


class CompiledLayer:
    """Its packed weights and buffers; the cache is its caller's."""

    def __init__(
        self,
        products: Sequence[tuple[Tensor, Tensor | None]],
        weight: Tensor,
        head_norms: Sequence[Tensor],
        eps: float,
        heads: int,
        cache: tuple[Tensor, Tensor],
        rope: tuple[Tensor, Tensor],
    ) -> None:
        """Pack a layer of `heads` query heads.

        Args:
            products: matrix float32 [outputs, inputs] and bias of query, key and value, of output, of gate and up, of
                down.
            weight: of the norm before the MLP, float32 [hidden].
            head_norms: those of query and key, float32 [head_dim] each, or none.
            cache: keys and values float32 [kv_heads, capacity, head_dim], the capacity a multiple of four.
            rope: cos and sin float32 [capacity, head_dim].
        """
        self._packed = Packed()
        for index, (matrix, bias) in enumerate(products):
            self._packed.add(matrix, bias, (len(matrix) // 2,) if index == GATE_UP else ())
        self._table, self._extras = self._packed.table, self._packed.extras
        self._kernels = kernels_of(self._table)
        hidden, (kv_heads, capacity, size) = len(weight), cache[0].shape
        self._norms = np.stack([np.ones(hidden, np.float32), weight.numpy()])[np.newaxis]
        self._head_norms: Floats = (
            torch.stack(list(head_norms)).numpy()[np.newaxis] if head_norms else np.zeros((0, 2, size), np.float32)
        )
        self._eps, self._heads = eps, heads
        self._cache = tuple(part.numpy()[np.newaxis] for part in cache)
        self._rope = tuple(part.numpy() for part in rope)
        self._stashes = np.zeros((2, 1, 0, kv_heads, size), np.float32)
        self._parts = np.ones((1, 2), np.bool_)
        self._wide = np.zeros((TILE, LANES * int(self._table[:, PANELS].max())), np.float32)
        self._own = np.zeros((1, 2, TILE, max(hidden, FEW * LANES)), np.float32)
        self._scores = np.zeros((1, attention_room(capacity, size)), np.float32)
        self._untapped = np.full(2, -1), np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.float32)
        self._counters = np.zeros(6 * LINE, np.int64)
        self._layouts = [laid_out(chain(max(1, rows))) for rows in range(TILE + 1)]

    def __call__(self, inputs: Tensor, residual: Tensor, start: int) -> Tensor:
        """The layer over 1 to TILE rows float32 [rows, inputs], onto `residual` float32 [rows, hidden], from slot
        `start` on, all slots before being seen."""
        made, given = residual.clone(), inputs.contiguous()
        layout = self._layouts[len(given)]
        passed = self.of_layers(given.data_ptr())
        _layers(made.numpy(), len(given), start, layout.spans, layout.before, *passed, 0, 1)
        return made

    def of_layers(self, given: int) -> tuple[Any, ...]:
        """What `passes.layers` takes after its rows, the inputs of the attention lying at address `given`."""
        return (
            self._stashes,
            -1,
            self._table,
            self._kernels,
            self._extras,
            self._norms,
            self._head_norms,
            self._eps,
            *self._cache,
            *self._rope,
            self._heads,
            self._parts,
            self._wide,
            self._own,
            self._scores,
            given,
            *self._untapped,
            self._counters,
        )

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()
