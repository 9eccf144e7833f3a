"""Key-value cache: one static buffer a layer; rollback is a change of length."""

import torch
from torch import Tensor

BLOCK = 64
"""Keys are attended in whole blocks, so that a row's sums depend on its own position alone."""


class KVCache:
    """Keys and values float32 [kv_heads, capacity, head_dim] for each layer; `length` entries are valid.

    `all_keys` and `all_values` are those of all layers, float32 [layers, kv_heads, capacity, head_dim].
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, context: int) -> None:
        capacity = -(-context // BLOCK) * BLOCK
        shape = (layers, kv_heads, capacity, head_dim)
        self.context = context
        self.capacity = capacity
        self.length = 0
        self.all_keys, self.all_values = torch.zeros(shape), torch.zeros(shape)
        self.keys: tuple[Tensor, ...] = self.all_keys.unbind(0)
        self.values: tuple[Tensor, ...] = self.all_values.unbind(0)

    def truncate(self, length: int) -> None:
        """Forget everything from position `length` on."""
        if length > self.length:
            raise ValueError(f"cannot truncate {self.length} entries to {length}")
        self.length = length

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
