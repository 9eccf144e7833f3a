"""Hidden states between layers that passes record, for heads."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.memory.vectors import whole_vectors
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout


class AuxHiddenStates:
    """Hidden states after some of the layers, by position, valid where the cache's KV entries are.

    So tokens that are reused or rolled back have their hidden states too.
    """

    def __init__(self, layers: Sequence[int], hidden: int, context: int) -> None:
        """`layers`: numbers of layers passed. Each of `context` positions has `hidden` values a layer."""
        self.layers, self._hidden = tuple(sorted(set(layers))), hidden
        room = whole_vectors(hidden)  # as the compiled pass writes them
        self.positions = torch.zeros(len(self.layers), context, room)
        self.tree_scratch = torch.zeros(len(self.layers), MAX_TREE_NODES, room)
        """Hidden states of a tree's nodes, by scratch row."""

    def at(self, layer: int, first: int, last: int) -> Tensor:
        """Hidden states float32 [last - first, hidden] at positions first, ..., last - 1; later passes change them."""
        return self.positions[self.layers.index(layer), first:last, : self._hidden]

    def put(self, layer: int, x: Tensor, start: int, layout: Layout | None) -> None:
        """Keep rows float32 [rows, hidden] of a pass from position `start` on; `keep` chooses among a tree's rows."""
        index = self.layers.index(layer)
        if layout is None:
            self.positions[index, start : start + len(x), : self._hidden] = x
            return
        self.tree_scratch[index, layout.scratch_row : layout.scratch_row + len(x), : self._hidden] = x
        if not layout.scratch_row and not layout.depths[0]:
            # No accepted path names the root.
            self.positions[index, start, : self._hidden] = x[0]

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Copy the hidden states of `rows`, a path of a tree, to the positions from `start` on."""
        self.positions[:, start : start + len(rows)] = self.tree_scratch[:, list(rows)]

    def memory(self) -> int:
        """Bytes held."""
        return 4 * (self.positions.numel() + self.tree_scratch.numel())
