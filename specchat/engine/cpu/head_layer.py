"""A head's layer over rows that follow each other by the compiled pass: what `heads/layer.py` computes, sooner.

One thread runs it: what takes long enough for several is left to torch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu import passes
from specchat.engine.cpu.descriptors import Descriptors
from specchat.engine.cpu.layout import laid_out
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.passes import GATE_UP
from specchat.engine.cpu.products import PANELS, kernels_of
from specchat.engine.cpu.together import LINE
from specchat.engine.model.rows import TILE
from specchat.engine.model.tree_layout import chain
from specchat.engine.model.vectors import FEW, LANES, attention_room
from specchat.engine.recipe import Attention, Gated, Layer, Matrix, Norm

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
        nothing = Matrix((), (), 0)  # the products are packed
        norms = [Norm(name, len(norm), eps) for name, norm in zip(("query", "key"), head_norms, strict=False)]
        query_norm, key_norm = norms or (None, None)
        mixer = Attention(heads, kv_heads, size, size**-0.5, nothing, nothing, None, query_norm, key_norm)
        pre_feed = Norm("feed", hidden, eps)
        layer = Layer(mixer, Gated(nothing, nothing), None, pre_feed)
        weights = dict(zip((pre_feed, *norms), (one.numpy() for one in (weight, *head_norms)), strict=True))
        arrays = [(cache[0].numpy(), cache[1].numpy())]
        self._descriptors = Descriptors([layer], self._table, weights, arrays, [(rope[0].numpy(), rope[1].numpy())])
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
            *self._untapped,
            self._counters,
        )

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()
