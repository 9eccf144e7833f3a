"""Key-value cache: one static buffer a layer; who writes to it knows which entries count."""

import torch

BLOCK = 64
"""Keys are attended in whole blocks, so that a row's sums depend on its own position alone."""


class KVCache:
    """Keys and values of all layers: float32 [layers, kv_heads, capacity, head_dim]."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int, context: int) -> None:
        capacity = -(-context // BLOCK) * BLOCK
        shape = (layers, kv_heads, capacity, head_dim)
        self.capacity = capacity
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for t in (self.keys, self.values))
