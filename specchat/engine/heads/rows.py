"""Rows of a head's pass: the slots of their KV entries, their positions, and their attention over a whole cache.

The caller of a head gives the attention: torch's own over the text here, the kernels in captured graphs.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.heads.tensors import HeadTensors
from specchat.engine.recipe import Attention, Experts
from specchat.engine.reference.ops import Attended

Rotations = tuple[Tensor, Tensor]
"""Cosines and signed sines by position."""
MixStacks = Callable[[Experts, Tensor, HeadTensors], Tensor]
"""(experts, inputs float32 [rows, inputs], their tensors) -> the mixture's output float32 [rows, hidden]."""


class HeadRows:
    """Rows of a pass, the same for all layers of a head."""

    def __init__(
        self,
        slots: Tensor | range,
        attend: Attended,
        positions: Tensor | None = None,
        mix: MixStacks | None = None,
        wanted: int = 0,
        device: torch.device | None = None,
    ) -> None:
        """Initialise.

        Args:
            slots: int64 [rows], where their KV entries go; a range for a chain that the host knows the place of.
            attend: attention over a whole cache, keys and values [kv_heads, capacity, head_dim].
            positions: int64 [rows], which rotate queries and keys; None: the slots.
            mix: runs mixtures of experts; None: the reference.
            wanted: number of last rows of which results are needed; 0: of all.
            device: of slots given as a range.
        """
        self.attend, self.mix, self.wanted = attend, mix, wanted
        self.first = slots.start if isinstance(slots, range) else None
        """Slot of the first row of a chain, for compiled layers, which need no tensor of them."""
        self._given, self._positions, self._device = slots, positions, device
        self._rotations: dict[int, tuple[Rotations, Rotations]] = {}

    @cached_property
    def slots(self) -> Tensor:
        """Slots of the rows, int64 [rows]."""
        given = self._given
        return torch.arange(given.start, given.stop, device=self._device) if isinstance(given, range) else given

    def rotation(self, tables: Rotations) -> Rotations:
        """Rows of `tables` at the positions, the same tensors for each layer with these tables."""
        if id(tables) not in self._rotations:
            positions = self.slots if self._positions is None else self._positions
            cos, sin = (table.index_select(0, positions) for table in tables)
            self._rotations[id(tables)] = tables, (cos, sin)
        return self._rotations[id(tables)][1]


def chain(first: int, rows: int, device: torch.device, wanted: int = 0) -> HeadRows:
    """Rows in slots first, first + 1, ..., after a text of `first` KV entries."""
    last = first + rows

    def attend(of: Attention, query: Tensor, keys: Tensor, values: Tensor, _: Tensor | None) -> Tensor:
        since = max(0, first + 1 - of.window) if of.window else 0
        seen = None
        if of.window or (of.causal and rows > 1):
            seen = torch.ones(rows, last - since, dtype=torch.bool, device=device)
            seen = seen.triu(first - since + 1 - of.window) if of.window else seen
            seen = seen.tril(first - since) if of.causal else seen
        return fused(of, query, keys[:, since:last], values[:, since:last], seen)

    return HeadRows(range(first, last), attend, wanted=wanted, device=device)


def nodes(first: int, positions: Tensor, seen: Tensor) -> HeadRows:
    """Rows in slots first, first + 1, ... for nodes of a tree at `positions` int64 [rows].

    `seen` bool [rows, first + rows] is true where a row attends.
    """

    def attend(of: Attention, query: Tensor, keys: Tensor, values: Tensor, _: Tensor | None) -> Tensor:
        return fused(of, query, keys[:, : seen.shape[1]], values[:, : seen.shape[1]], seen)

    return HeadRows(torch.arange(first, seen.shape[1], device=seen.device), attend, positions)


def fused(of: Attention, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Attention as `reference.layer.attended` by torch's own kernel, a fifth faster for a block."""
    query, keys, values = (each.float().unsqueeze(0) for each in (query, keys, values))
    return scaled_dot_product_attention(query, keys, values, seen, scale=of.scale, enable_gqa=True).squeeze(0)
