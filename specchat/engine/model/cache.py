"""Key-value cache: one static buffer a layer; rollback is a change of length."""

import torch
from torch import Tensor

BLOCK = 64
"""Keys are attended in whole blocks, so that a row's sums depend on its own position alone."""


class KVCache:
    """Keys and values float32 [kv_heads, capacity, head_dim] for each layer; `length` entries are valid."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int, context: int) -> None:
        capacity = -(-context // BLOCK) * BLOCK
        shape = (layers, kv_heads, capacity, head_dim)
        self.context = context
        self.capacity = capacity
        self.length = 0
        self._all = torch.zeros(shape), torch.zeros(shape)
        self.keys: tuple[Tensor, ...] = self._all[0].unbind(0)
        self.values: tuple[Tensor, ...] = self._all[1].unbind(0)

    def slots(self, start: int, rows: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Where each layer writes the keys and the values of `rows` tokens: float32 [rows, kv_heads, head_dim]."""
        keys, values = (whole.narrow(2, start, rows).transpose(1, 2).unbind(0) for whole in self._all)
        return keys, values

    def window(self, seen: int, entries: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Each layer's first `seen` keys and values, for a batch: float32 [entries, kv_heads, seen, head_dim].

        One view for all layers, cut apart: views made layer by layer cost more than the norms of a step.
        """
        keys, values = (
            whole.narrow(2, 0, seen).unsqueeze(1).expand(-1, entries, -1, -1, -1).unbind(0) for whole in self._all
        )
        return keys, values

    def truncate(self, length: int) -> None:
        """Forget everything from position `length` on."""
        if length > self.length:
            raise ValueError(f"cannot truncate {self.length} entries to {length}")
        self.length = length

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
