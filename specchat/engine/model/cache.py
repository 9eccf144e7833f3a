"""KV cache: static buffers of each layer; the writer tracks which KV entries are valid."""

import torch

from specchat.engine.model import host_need
from specchat.engine.model.host_need import CACHE_BLOCK
from specchat.engine.model.vectors import LANES
from specchat.engine.recipe import Recipe


class KVCache:
    """`keys` and `values` of each layer, float32 [kv_heads, positions, head_dim].

    A layer with a window holds the last positions alone, from that of `bases` on. One that shares the entries of
    another has that layer's tensors.
    """

    def __init__(self, recipe: Recipe, context: int) -> None:
        self.capacity = -(-context // CACHE_BLOCK) * CACHE_BLOCK
        mixers = [layer.mixer for layer in recipe.layers]
        self._places = [index if mixer.share is None else mixer.share for index, mixer in enumerate(mixers)]
        """The layer whose entries each has."""

        def made() -> list[torch.Tensor]:
            of: list[torch.Tensor] = []
            for place, mixer in zip(self._places, mixers, strict=True):
                shape = mixer.kv_heads, host_need.positions(mixer, self.capacity), mixer.head_dim
                of.append(torch.zeros(shape) if place == len(of) else of[place])
            return of

        self.keys, self.values = made(), made()
        self.bases = [0] * len(mixers)
        self._windows, self._back = [mixer.window for mixer in mixers], host_need.BACK

    def slide(self, start: int, end: int) -> bool:
        """Make room for positions start, ..., end - 1; return True where `bases` changed.

        Raises:
            ValueError: entries that position `start` attends to are gone.
        """
        moved = False
        for index, (window, keys) in enumerate(zip(self._windows, self.keys, strict=True)):
            if not self._owns(index):
                self.bases[index] = self.bases[self._places[index]]
                continue
            base, size = self.bases[index], keys.shape[1]
            if start == 0 and base:
                self.bases[index], moved = 0, True
            elif end - base > size:
                # In whole vectors: an entry's place in a vector never changes.
                self.bases[index], moved = (start - window - self._back) // LANES * LANES, True
                shift = self.bases[index] - base
                for part in (keys, self.values[index]):
                    part[:, : size - shift] = part[:, shift:].clone()
            if start and self.bases[index] > max(0, start - window + 1):
                raise ValueError(f"entries before position {self.bases[index]} are gone, and {start} attends to them")
        return moved

    def reusable(self, length: int) -> int:
        """`length` if a text may go on after so many tokens of what the cache holds, otherwise 0."""
        gone = any(base > max(0, length - window + 1) for base, window in zip(self.bases, self._windows, strict=True))
        return 0 if gone else length

    def memory(self) -> int:
        """Bytes held."""
        owned = (pair for index, pair in enumerate(zip(self.keys, self.values, strict=True)) if self._owns(index))
        return sum(t.numel() * t.element_size() for pair in owned for t in pair)

    def _owns(self, index: int) -> bool:
        return self._places[index] == index
