"""Hidden states between the layers, kept for drafters that look at them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.model.runs import Runs


class Taps:
    """What tokens were after some of the layers, by slot of the cache, and valid where the cache's entries are.

    So a text that is taken up again or rolled back has its hidden states too.
    """

    def __init__(self, layers: Sequence[int], hidden: int, context: int) -> None:
        """`layers` counts those passed; hidden states have `hidden` values, and there is room for `context` tokens."""
        self.layers = tuple(sorted(set(layers)))
        self._slots = {layer: torch.zeros(context, hidden) for layer in self.layers}
        self._stash = {layer: torch.zeros(0, hidden) for layer in self.layers}
        """Those of a tree's nodes, by row; it grows with the trees."""

    def at(self, layer: int, first: int, last: int) -> Tensor:
        """The hidden states float32 [last - first, hidden] in slots first, ..., last - 1; later passes change them."""
        return self._slots[layer][first:last]

    def put(self, layer: int, x: Tensor, start: int, runs: Runs | None) -> None:
        """Keep rows float32 [rows, hidden] of a pass from slot `start` on; `keep` chooses among those of a tree."""
        if runs is None:
            self._slots[layer][start : start + len(x)] = x
            return
        stash = self._stash[layer]
        if (missing := runs.stashed + len(x) - len(stash)) > 0:
            stash = self._stash[layer] = torch.cat([stash, stash.new_zeros(missing, stash.shape[1])])
        stash[runs.stashed : runs.stashed + len(x)] = x
        if not runs.stashed and not runs.depths[0]:
            # No path that is kept names the root.
            self._slots[layer][start] = x[0]

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Put the hidden states of these rows of a tree, a path of it, into the slots from `start` on."""
        for layer, stash in self._stash.items():
            self._slots[layer][start : start + len(rows)] = stash[list(rows)]

    def memory(self) -> int:
        """Bytes held."""
        return sum(4 * states.numel() for states in (*self._slots.values(), *self._stash.values()))
