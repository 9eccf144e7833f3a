"""Key-value cache: one static buffer a layer; rollback is a change of length."""

import torch
from torch import Tensor

from specchat.engine.model.config import ModelConfig

BLOCK = 64
"""Keys are attended in whole blocks, so that a row's sums depend on its own position alone."""


class KVCache:
    """Keys and values float32 [kv_heads, capacity, head_dim] for each layer; `length` entries are valid."""

    def __init__(self, config: ModelConfig, context: int) -> None:
        capacity = -(-context // BLOCK) * BLOCK
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.context = context
        self.capacity = capacity
        self.length = 0
        # Layers are separate tensors: one stacked tensor makes every write and read a strided view of a view.
        self.keys: tuple[Tensor, ...] = torch.zeros(shape).unbind(0)
        self.values: tuple[Tensor, ...] = torch.zeros(shape).unbind(0)

    def truncate(self, length: int) -> None:
        """Forget everything from position `length` on."""
        if length > self.length:
            raise ValueError(f"cannot truncate {self.length} entries to {length}")
        self.length = length

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
