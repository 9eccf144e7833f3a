"""Rows of a head's pass: the slots of their KV entries, their positions, and their attention over a whole cache.

The caller of a head gives the attention: torch's own over the text here, the kernels in captured graphs.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.recipe import Attention
from specchat.engine.reference.ops import Attended, Mixture

Entries = tuple[Tensor, Tensor]
"""Keys and values."""
Rotations = tuple[Tensor, Tensor]
"""Cosines and signed sines by position."""


class HeadRows:
    """Rows of a pass, the same for all layers of a head."""

    def __init__(
        self,
        slots: Tensor | slice,
        attend: Attended,
        positions: Tensor | None = None,
        mix: Mixture | None = None,
        wanted: int = 0,
    ) -> None:
        """Initialise.

        Args:
            slots: int64 [rows], where their KV entries go; a slice for a chain that the host knows the place of.
            attend: attention over a whole cache, keys and values [kv_heads, capacity, head_dim].
            positions: int64 [rows], which rotate queries and keys; None: the slots.
            mix: runs mixtures of experts; None: the reference.
            wanted: number of last rows of which results are needed; 0: of all.
        """
        self.attend, self.mix, self.wanted = attend, mix, wanted
        self.first = slots.start if isinstance(slots, slice) and positions is None else None
        """Slot of the first row of a chain, for compiled layers."""
        self._slots, self._positions = slots, slots if positions is None else positions
        self._rotations: dict[int, tuple[Rotations, Rotations]] = {}

    def rotation(self, tables: Rotations) -> Rotations:
        """Rows of `tables` at the positions, the same tensors for each layer with these tables."""
        if id(tables) not in self._rotations:
            at = self._positions
            cos, sin = (table[at] if isinstance(at, slice) else table.index_select(0, at) for table in tables)
            self._rotations[id(tables)] = tables, (cos, sin)
        return self._rotations[id(tables)][1]

    def write(self, caches: Entries, entries: Entries) -> None:
        """Write keys and values float32 [kv_heads, rows, head_dim] to caches [kv_heads, capacity, head_dim]."""
        for cache, made in zip(caches, entries, strict=True):
            if isinstance(self._slots, slice):
                cache[:, self._slots] = made
            else:
                cache.index_copy_(1, self._slots, made.to(cache.dtype))


def chain(first: int, rows: int, wanted: int = 0) -> HeadRows:
    """Rows in slots first, first + 1, ..., after a text of `first` KV entries."""
    last = first + rows

    def attend(of: Attention, query: Tensor, keys: Tensor, values: Tensor, _: Tensor | None) -> Tensor:
        since = max(0, first + 1 - of.window) if of.window else 0
        seen = None
        if of.window or (of.causal and rows > 1):
            seen = torch.ones(rows, last - since, dtype=torch.bool, device=query.device)
            seen = seen.triu(first - since + 1 - of.window) if of.window else seen
            seen = seen.tril(first - since) if of.causal else seen
        return fused(of, query, keys[:, since:last], values[:, since:last], seen)

    return HeadRows(slice(first, last), attend, wanted=wanted)


def nodes(first: int, positions: Tensor, seen: Tensor) -> HeadRows:
    """Rows in slots first, first + 1, ... for nodes of a tree at `positions` int64 [rows].

    `seen` bool [rows, first + rows] is true where a row attends.
    """

    def attend(of: Attention, query: Tensor, keys: Tensor, values: Tensor, _: Tensor | None) -> Tensor:
        return fused(of, query, keys[:, : seen.shape[1]], values[:, : seen.shape[1]], seen)

    return HeadRows(slice(first, seen.shape[1]), attend, positions)


def fused(of: Attention, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Attention as `reference.layer.attended` by torch's own kernel, a fifth faster for a block."""
    query, keys, values = (each.float().unsqueeze(0) for each in (query, keys, values))
    return scaled_dot_product_attention(query, keys, values, seen, scale=of.scale, enable_gqa=True).squeeze(0)
