"""Rows of a head's pass: the slots of their KV entries, their positions, and their attention over a whole cache.

Whoever runs a head gives the attention: torch's own over the text here, the kernels in captured graphs.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.heads.tensors import HeadTensors
from specchat.engine.recipe import Attention, Experts
from specchat.engine.reference.layer import Attend

Rotations = tuple[Tensor, Tensor]
"""Cosines and signed sines by position."""
MixStacks = Callable[[Experts, Tensor, HeadTensors], Tensor]
"""(experts, inputs float32 [rows, inputs], their tensors) -> the mixture's output float32 [rows, hidden]."""


class Rows:
    """Rows of a pass, the same for all layers of a head."""

    def __init__(
        self,
        slots: Tensor,
        attend: Attend,
        positions: Tensor | None = None,
        first: int | None = None,
        mix: MixStacks | None = None,
        wanted: int = 0,
    ) -> None:
        """Initialise.

        Args:
            slots: int64 [rows], where their KV entries go.
            attend: attention over a whole cache, keys and values [kv_heads, capacity, head_dim].
            positions: int64 [rows], which rotate queries and keys; None: the slots.
            first: slot of the first row if the host knows that they are a chain, as compiled layers need.
            mix: runs mixtures of experts; None: the reference.
            wanted: number of last rows of which results are needed; 0: of all.
        """
        self.slots, self.attend, self.first, self.mix, self.wanted = slots, attend, first, mix, wanted
        self._positions = slots if positions is None else positions
        self._rotations: dict[int, tuple[Rotations, Rotations]] = {}

    def rotation(self, tables: Rotations) -> Rotations:
        """Rows of `tables` at the positions, the same tensors for each layer with these tables."""
        if id(tables) not in self._rotations:
            cos, sin = (table.index_select(0, self._positions) for table in tables)
            self._rotations[id(tables)] = tables, (cos, sin)
        return self._rotations[id(tables)][1]


def chain(first: int, rows: int, device: torch.device, wanted: int = 0) -> Rows:
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

    return Rows(torch.arange(first, last, device=device), attend, first=first, wanted=wanted)


def nodes(first: int, positions: Tensor, seen: Tensor) -> Rows:
    """Rows in slots first, first + 1, ... for nodes of a tree at `positions` int64 [rows].

    `seen` bool [rows, first + rows] is true where a row attends.
    """

    def attend(of: Attention, query: Tensor, keys: Tensor, values: Tensor, _: Tensor | None) -> Tensor:
        return fused(of, query, keys[:, : seen.shape[1]], values[:, : seen.shape[1]], seen)

    return Rows(torch.arange(first, seen.shape[1], device=seen.device), attend, positions)


def fused(of: Attention, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Attention as `reference.layer.attended` by torch's own kernel, a fifth faster for a block."""
    query, keys, values = (each.float().unsqueeze(0) for each in (query, keys, values))
    return scaled_dot_product_attention(query, keys, values, seen, scale=of.scale, enable_gqa=True).squeeze(0)
