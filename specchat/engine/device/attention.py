"""KV entries of attention and short convolutions on a GPU, and tables by position."""

from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import held
from specchat.engine.kernels.keep import keep
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.model.rope import tables, tempers
from specchat.engine.recipe import Attention, Delta, Recipe, Rope, ShortConv


class Placed(NamedTuple):
    """Rows of a pass, with the KV entries that they become and attend to.

    Attributes:
        rows: number of rows.
        start: int32 [1], KV entry of the first row.
        length: int32 [1], KV entries that all rows attend to.
        offsets: int32 [>= rows], row r's position less `start`.
        path: as in `decoder.Branches`; None for a chain.
    """

    rows: int
    start: Tensor
    length: Tensor
    offsets: Tensor
    path: Tensor | None


class KvCaches:
    """The caches of all layers with attention or short convolutions."""

    def __init__(self, recipe: Recipe, context: int, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        """Allocate caches of `capacity` positions, of which `context` hold text."""
        self.context, self.capacity = context, capacity
        cached, mixers = recipe.cached, recipe.attentions

        def shape_of(mixer: Attention | ShortConv) -> tuple[int, int, int]:
            return mixer.kv_heads, held(mixer.window, context, capacity), mixer.head_dim

        alike = Counter(shape_of(mixer) for mixer in cached if mixer.share is None)
        self.by_shape = {
            shape: torch.zeros(2, count, *shape, device=device, dtype=dtype) for shape, count in alike.items()
        }
        """Keys and values of all layers of one shape, by that shape: [2, layers, kv_heads, held, head_dim]."""
        sizes = {(held(mixer.window, context, capacity), mixer.window) for mixer in cached}
        self._rings = [(entries, window) for entries, window in sizes if entries < capacity]
        """KV entries of layers that hold those of a window, and the window."""
        unused = {shape: zip(*cache, strict=True) for shape, cache in self.by_shape.items()}
        self.entries: dict[int, tuple[Tensor, Tensor]] = {}
        """Keys and values that a layer attends to, by its index: [kv_heads, held, head_dim]."""
        for index, layer in enumerate(recipe.layers):
            if not isinstance(mixer := layer.mixer, Delta):
                share = mixer.share
                self.entries[index] = next(unused[shape_of(mixer)]) if share is None else self.entries[share]
        self.turns = {
            one: [table.to(device) for table in tables(*one, capacity, context)] for one in set(map(turn, mixers))
        }
        """cos and sin of each rope, by the values of a head that it turns."""
        factors = {mixer.temper: tempers(mixer, capacity) for mixer in mixers}
        self.tempers = {temper: made.to(device) for temper, made in factors.items() if made is not None}

    def reusable(self, length: int, furthest: int) -> int:
        """Return the most tokens, up to `length`, after which a text may go on; `furthest` positions have been written.

        A pass from there attends to entries of a window that nothing has overwritten yet.
        """
        gone = any(furthest - entries > max(0, length + 1 - window) for entries, window in self._rings)
        return 0 if gone else length

    def keep(self, state: VerifyState, places: Tensor | None) -> None:
        """After `commit`, move the KV entries of the accepted nodes together (`kernels.keep`)."""
        for keys, values in self.by_shape.values():
            keep(keys, values, state, places)

    def memory(self) -> int:
        """Bytes of caches and tables."""
        tables = (table for pair in self.turns.values() for table in pair)
        return sum(t.nbytes for t in (*self.by_shape.values(), *tables, *self.tempers.values()))


def turn(mixer: Attention) -> tuple[Rope | None, int]:
    """The rope of a mixer, and the values of a head that it turns."""
    return mixer.rope, mixer.rotary_dim
