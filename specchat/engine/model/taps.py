"""Hidden states between the layers, kept for drafters that look at them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.model.runs import STASH_ROWS, Runs


class Taps:
    """What tokens were after some of the layers, by slot of the cache, and valid where the cache's entries are.

    So a text that is taken up again or rolled back has its hidden states too.
    """

    def __init__(self, layers: Sequence[int], hidden: int, context: int) -> None:
        """`layers` counts those passed; hidden states have `hidden` values, and there is room for `context` tokens."""
        self.layers = tuple(sorted(set(layers)))
        self.slots = torch.zeros(len(self.layers), context, hidden)
        self.stash = torch.zeros(len(self.layers), STASH_ROWS, hidden)
        """Those of a tree's nodes, by row."""

    def at(self, layer: int, first: int, last: int) -> Tensor:
        """The hidden states float32 [last - first, hidden] in slots first, ..., last - 1; later passes change them."""
        return self.slots[self.layers.index(layer), first:last]

    def put(self, layer: int, x: Tensor, start: int, runs: Runs | None) -> None:
        """Keep rows float32 [rows, hidden] of a pass from slot `start` on; `keep` chooses among those of a tree."""
        index = self.layers.index(layer)
        if runs is None:
            self.slots[index, start : start + len(x)] = x
            return
        self.stash[index, runs.stashed : runs.stashed + len(x)] = x
        if not runs.stashed and not runs.depths[0]:
            # No path that is kept names the root.
            self.slots[index, start] = x[0]

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Put the hidden states of these rows of a tree, a path of it, into the slots from `start` on."""
        self.slots[:, start : start + len(rows)] = self.stash[:, list(rows)]

    def memory(self) -> int:
        """Bytes held."""
        return 4 * (self.slots.numel() + self.stash.numel())
