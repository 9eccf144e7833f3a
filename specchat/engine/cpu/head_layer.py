"""A head's layer over rows that follow each other in one compiled function: what `heads/layer.py` computes, sooner.

One thread runs it: what takes long enough for several is left to torch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.atomics import address
from specchat.engine.cpu.compiled import keeping
from specchat.engine.cpu.layout import laid_out
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.passes import DOWN, GATE_UP, OUT, attention
from specchat.engine.cpu.products import COLUMNS, FORM, PANELS, ROWS, kernels
from specchat.engine.cpu.rowwise import norm
from specchat.engine.cpu.tiles import FORMS
from specchat.engine.cpu.together import gates, onto, product
from specchat.engine.model.rows import TILE
from specchat.engine.model.runs import chain
from specchat.engine.model.vectors import FEW, LANES

Floats = NDArray[np.float32]


@njit(
    "void(f4[:,::1], f4[:,::1], i8, i8[:,::1], i8[::1], i8[:,::1], i8[:,::1], f4[::1], f4[::1], f4[:,::1], f4, "
    "f4[:,:,::1], f4[:,:,::1], f4[:,::1], f4[:,::1], i8, f4[:,::1], f4[:,:,::1], f4[::1])",
    nogil=True,
    error_model="numpy",
    cache=keeping(),
)
def layer(
    inputs: Any,
    x: Any,
    start: int,
    runs: Any,
    before: Any,
    table: Any,
    plans: Any,
    extras: Any,
    weight: Any,
    head_norms: Any,
    eps: np.float32,
    keys: Any,
    values: Any,
    cos: Any,
    sin: Any,
    heads: int,
    wide: Any,
    own: Any,
    scores: Any,
) -> None:
    """The layer over rows in slots `start`, start + 1, ... onto x, which is changed in place.

    Args:
        inputs: float32 [rows, inputs] of the attention.
        x: float32 [rows, hidden].
        table: int64 [4, COLUMNS], of its products; `plans` and `extras` are `kernels` and `extras` of `multiply`.
        weight: float32 [hidden], of the norm before the MLP; `head_norms` [2, head_dim], or of none.
        keys, values: the cache, float32 [kv_heads, capacity, head_dim].
        wide: float32 [>= rows, the widest product's outputs]; own [2, >= rows, hidden, but LANES * FEW at least].
        scores: float32 [2 head_dim + capacity + LANES].
        runs, before, cos, sin: as in `passes.layers`.
    """
    rows, hidden, kv_heads, size = x.shape[0], x.shape[1], keys.shape[0], keys.shape[2]
    xs, ys, wide_row, own_row = address(x), address(wide), wide.shape[1], own.shape[2]
    of, functions, more = address(table), address(plans), address(extras)
    normed, scratch = address(own), address(own) + 4 * own.shape[1] * own_row
    product(rows, address(inputs), inputs.shape[1], of, functions, more, ys, wide_row, 0, 0, 1)
    for head in range(kv_heads):
        entries = 4 * head * keys.shape[1] * size
        attention(
            head,
            kv_heads,
            heads // kv_heads,
            size,
            start,
            address(runs),
            runs.shape[0],
            address(before),
            0,
            -1,
            0,
            address(head_norms) if head_norms.shape[0] else 0,
            eps,
            address(keys) + entries,
            address(values) + entries,
            address(cos),
            address(sin),
            ys,
            wide_row,
            address(scores),
        )
    onto(rows, ys, wide_row, of + 8 * COLUMNS * OUT, functions, more, xs, hidden, scratch, own_row, 0, 0, 1)
    for r in range(rows):
        norm(xs + 4 * r * hidden, address(weight), normed + 4 * r * own_row, hidden, eps)
    gates(rows, normed, own_row, of + 8 * COLUMNS * GATE_UP, functions, more, ys, wide_row, 0, 0, 1)
    onto(rows, ys, wide_row, of + 8 * COLUMNS * DOWN, functions, more, xs, hidden, scratch, own_row, 0, 0, 1)


_layer: Any = layer


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
        self._plans = np.zeros((FORMS, ROWS + 1), np.int64)
        for form in set(self._table[:, FORM].tolist()):
            self._plans[form] = kernels(form)
        self._weight, self._eps, self._heads = weight.numpy(), eps, heads
        self._head_norms: Floats = (
            torch.stack(list(head_norms)).numpy() if head_norms else np.zeros((0, len(rope[0][0])), np.float32)
        )
        self._cache, self._rope = tuple(part.numpy() for part in cache), tuple(part.numpy() for part in rope)
        capacity, size = cache[0].shape[1:]
        self._wide = np.zeros((TILE, LANES * int(self._table[:, PANELS].max())), np.float32)
        self._own = np.zeros((2, TILE, max(len(weight), FEW * LANES)), np.float32)
        self._scores = np.zeros(2 * size + capacity + LANES, np.float32)
        self._layouts = [laid_out(chain(max(1, rows))) for rows in range(TILE + 1)]

    def __call__(self, inputs: Tensor, residual: Tensor, start: int) -> Tensor:
        """The layer over 1 to TILE rows float32 [rows, inputs], onto `residual` float32 [rows, hidden], from slot
        `start` on, all slots before being seen."""
        made = residual.clone()
        layout = self._layouts[len(inputs)]
        _layer(
            inputs.contiguous().numpy(),
            made.numpy(),
            start,
            layout.spans,
            layout.before,
            self._table,
            self._plans,
            self._extras,
            self._weight,
            self._head_norms,
            self._eps,
            *self._cache,
            *self._rope,
            self._heads,
            self._wide,
            self._own,
            self._scores,
        )
        return made

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()
