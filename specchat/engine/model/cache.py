"""KV cache: static buffers of each layer; the writer tracks which KV entries are valid."""

import torch

from specchat.engine.model.host_need import CACHE_BLOCK
from specchat.engine.recipe import Recipe


class KVCache:
    """`keys` and `values` of each layer, float32 [kv_heads, capacity, head_dim]."""

    def __init__(self, recipe: Recipe, context: int) -> None:
        self.capacity = -(-context // CACHE_BLOCK) * CACHE_BLOCK
        shapes = [(layer.mixer.kv_heads, self.capacity, layer.mixer.head_dim) for layer in recipe.layers]
        self.keys, self.values = ([torch.zeros(shape) for shape in shapes] for _ in range(2))

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
