"""Key-value cache: static buffers of each layer; who writes to them knows which entries count."""

import torch

from specchat.engine.recipe import Recipe

BLOCK = 64
"""Caches are made in whole blocks of so many positions."""


class KVCache:
    """For each layer `keys` and `values`, float32 [kv_heads, capacity, head_dim] as its attention has them."""

    def __init__(self, recipe: Recipe, context: int) -> None:
        self.capacity = -(-context // BLOCK) * BLOCK
        shapes = [(layer.mixer.kv_heads, self.capacity, layer.mixer.head_dim) for layer in recipe.layers]
        self.keys, self.values = ([torch.zeros(shape) for shape in shapes] for _ in range(2))

    def memory(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
