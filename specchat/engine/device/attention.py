"""KV entries of attention and short convolutions on a GPU, and tables by position."""

from collections import Counter
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import held
from specchat.engine.kernels.keep import keep
from specchat.engine.kernels.kv_entries import Scales, dequantised
from specchat.engine.kernels.rope import Turns
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
        until: int32 [1], as in `kernels.attention.attend`; None in passes that read no pictures.
    """

    rows: int
    start: Tensor
    length: Tensor
    offsets: Tensor
    path: Tensor | None
    until: Tensor | None = None


class EntryShape(NamedTuple):
    """Shape of the KV entries of a layer; `block` values of a head share a scale, 0: there are none."""

    kv_heads: int
    held: int
    head_dim: int
    block: int


class KvCaches:
    """The caches of all layers with attention or short convolutions."""

    def __init__(self, recipe: Recipe, context: int, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        """Allocate caches of `capacity` positions, of which `context` hold text."""
        self.context, self.capacity = context, capacity
        cached, mixers = recipe.cached, recipe.attentions

        def shape_of(mixer: Attention | ShortConv) -> EntryShape:
            entries = held(mixer.window, context, capacity, mixer.mutual)
            return EntryShape(mixer.kv_heads, entries, mixer.head_dim, mixer.block)

        alike = Counter(shape_of(mixer) for mixer in cached if mixer.share is None)

        def zeros(shape: EntryShape, values: int, kind: torch.dtype) -> Tensor:
            return torch.zeros(2, alike[shape], shape.kv_heads, shape.held, values, device=device, dtype=kind)

        self.by_shape = {shape: zeros(shape, shape.head_dim, torch.int8 if shape.block else dtype) for shape in alike}
        """Keys and values of all layers of one shape, by that shape: [2, layers, kv_heads, held, head_dim]."""
        self._scales = {
            shape: zeros(shape, shape.head_dim // shape.block, torch.float32) for shape in alike if shape.block
        }
        """Scales of int8 keys and values, likewise: [2, layers, kv_heads, held, blocks]."""
        sizes = {(shape_of(mixer).held, mixer.window) for mixer in cached}
        self._rings = [(entries, window) for entries, window in sizes if entries < capacity]
        """KV entries of layers that hold those of a window, and the window."""
        mixed = ((index, layer.mixer) for index, layer in enumerate(recipe.layers))
        self._layers = [(index, mixer.share, shape_of(mixer)) for index, mixer in mixed if not isinstance(mixer, Delta)]
        self._share_out()
        self.turns = {
            (rope, width): Turns.of(cos, sin, rope.turning if rope else 1).on(device)
            for rope, width in set(map(turn, mixers))
            for cos, sin in [tables(rope, width, capacity, context)]
        }
        """Tables of each rope, by the values of a head that it turns."""
        factors = {mixer.temper: tempers(mixer, capacity) for mixer in mixers}
        self.tempers = {temper: made.to(device) for temper, made in factors.items() if made is not None}

    def _share_out(self) -> None:
        """Give each layer its part of the caches, or that of the layer whose entries it shares."""
        unused, scales = (
            {shape: zip(*cache, strict=True) for shape, cache in kind.items()} for kind in (self.by_shape, self._scales)
        )
        self.entries: dict[int, tuple[Tensor, Tensor]] = {}
        """Keys and values that a layer attends to, by its index: [kv_heads, held, head_dim]."""
        self.scales: dict[int, Scales] = {}
        """The scales of int8 keys and values that a layer attends to, by its index: [kv_heads, held, blocks]."""
        for index, share, shape in self._layers:
            self.entries[index] = next(unused[shape]) if share is None else self.entries[share]
            if shape.block:
                self.scales[index] = Scales(*next(scales[shape])) if share is None else self.scales[share]

    def another(self) -> "KvCaches":
        """Caches for another text, empty, with the same tables."""
        other = copy(self)
        other.by_shape, other._scales = (
            {shape: torch.zeros_like(cache) for shape, cache in kind.items()} for kind in (self.by_shape, self._scales)
        )
        other._share_out()
        return other

    def turn(self, first: int, places: Tensor, context: int) -> None:
        """Let the entries from `first` on turn by `places`, float32 [entries, width / 2], one for each rotation."""
        for (rope, width), into in self.turns.items():
            if rope is not None:
                new = Turns.of(*tables(rope, width, len(places), context, places), into.cos.shape[1])
                into.cos[first : first + len(places)].copy_(new.cos)
                into.sin[first : first + len(places)].copy_(new.sin)

    def reusable(self, length: int, furthest: int) -> int:
        """Return the most tokens, up to `length`, after which a text may go on; `furthest` positions have been written.

        A pass from there attends to entries of a window that nothing has overwritten yet.
        """
        gone = any(furthest - entries > max(0, length + 1 - window) for entries, window in self._rings)
        return 0 if gone else length

    def parts(self, rings: bool) -> list[Tensor]:
        """Entries of `rings`, or those of layers that have all positions: views [any, held, values], scales too."""
        held = (*self.by_shape.items(), *self._scales.items())
        return [part.flatten(0, 2) for shape, part in held if (shape.held < self.capacity) == rings]

    def keep(self, state: VerifyState, places: Tensor | None) -> None:
        """After `commit`, move the KV entries of the accepted nodes together (`kernels.keep`)."""
        for keys, values in (*self.by_shape.values(), *self._scales.values()):
            keep(keys, values, state, places)

    @property
    def size(self) -> int:
        """Bytes of the caches."""
        return sum(cache.nbytes for cache in (*self.by_shape.values(), *self._scales.values()))

    def memory(self) -> int:
        """Bytes of caches and tables."""
        tables = (table for of in self.turns.values() for table in of[:2])
        return self.size + sum(t.nbytes for t in (*tables, *self.tempers.values()))

    def read(self, layer: int, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values that a layer attends to, [kv_heads, entries, head_dim]: float32 of an int8 cache.

        Those at `places` int64 [entries] of what it holds; None: all.
        """

        def chosen(part: Tensor) -> Tensor:
            return part if places is None else part.index_select(1, places)

        keys, values = map(chosen, self.entries[layer])
        if layer in self.scales:
            of_keys, of_values = map(chosen, self.scales[layer])
            return dequantised(keys, of_keys), dequantised(values, of_values)
        return keys, values


def turn(mixer: Attention) -> tuple[Rope | None, int]:
    """The rope of a mixer, and the values of a head that it turns."""
    return mixer.rope, mixer.rotary_dim
