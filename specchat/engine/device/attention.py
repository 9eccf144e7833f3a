"""Attention and short convolutions of layers on a GPU: entries, tables, and the launches between two norms."""

from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.buffers import Between, Buffers
from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels import ahead
from specchat.engine.kernels.attention import attend
from specchat.engine.kernels.gpu_shapes import held
from specchat.engine.kernels.keep import keep
from specchat.engine.kernels.products import multiply
from specchat.engine.kernels.rope import NormOf, rope_and_write
from specchat.engine.kernels.short_conv import short_conv
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.model.rope import tables, tempers
from specchat.engine.recipe import Attention, Delta, Norm, Recipe, Rope, ShortConv

LAUNCHES = 3
"""From a layer's first product to its last one: rotation, attention, and its combination."""


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


class Attentions:
    """The attention and short convolutions of all layers, with their caches."""

    def __init__(
        self,
        recipe: Recipe,
        weights: ModelWeights,
        context: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Allocate caches of `capacity` positions, of which `context` hold text."""
        self._weights, self._context, self._capacity = weights, context, capacity
        cached, mixers = recipe.cached, recipe.attentions

        def shape_of(mixer: Attention | ShortConv) -> tuple[int, int, int]:
            return mixer.kv_heads, held(mixer.window, context, capacity), mixer.head_dim

        alike = Counter(shape_of(mixer) for mixer in cached if mixer.share is None)
        self.caches = {
            shape: torch.zeros(2, count, *shape, device=device, dtype=dtype) for shape, count in alike.items()
        }
        """Keys and values of all layers of one shape, by that shape: [2, layers, kv_heads, held, head_dim]."""
        sizes = {(held(mixer.window, context, capacity), mixer.window) for mixer in cached}
        self._rings = [(entries, window) for entries, window in sizes if entries < capacity]
        """KV entries of layers that hold those of a window, and the window."""
        unused = {shape: zip(*cache, strict=True) for shape, cache in self.caches.items()}
        self.entries: dict[int, tuple[Tensor, Tensor]] = {}
        """Keys and values that a layer attends to, by its index: [kv_heads, held, head_dim]."""
        for index, layer in enumerate(recipe.layers):
            if not isinstance(mixer := layer.mixer, Delta):
                share = mixer.share
                self.entries[index] = next(unused[shape_of(mixer)]) if share is None else self.entries[share]
        turns = set(map(_turn, mixers))
        self._turns = {turn: [t.to(device) for t in tables(*turn, capacity, context)] for turn in turns}
        """cos and sin of each rope, by the values of a head that it turns."""
        factors = {mixer.temper: tempers(mixer, capacity) for mixer in mixers}
        self._tempers = {temper: made.to(device) for temper, made in factors.items() if made is not None}

    def mix(
        self, index: int, mixer: Attention, buffers: Buffers, own: Between[Tensor], at: Placed, skip: Tensor | None
    ) -> None:
        """Write the rows' KV entries of layer `index`, and its output to `own.out`; the input is in `buffers.x`."""
        keys, values = self.entries[index]
        rows = at.rows
        multiply(buffers.x, *self._weights.products[mixer.qkv], own.qkv, rows, skip)
        query_norm, key_norm, value_norm = map(self._norm, (mixer.query_norm, mixer.key_norm, mixer.value_norm))
        cos, sin = self._turns[_turn(mixer)]
        out = self._weights.products[mixer.out]
        rope_and_write(
            own.qkv, query_norm, key_norm, cos, sin, at.start, at.offsets, own.query, keys, values, rows, skip,
            value_norm, self._tempers.get(mixer.temper), mixer.gated, ahead.of_weight(out.weight, LAUNCHES),
        )  # fmt: skip
        window = mixer.window if mixer.window < self._context else 0
        sinks = self._weights.vectors[mixer.sinks] if mixer.sinks else None
        attend(
            own.query, keys, values, at.length, at.path, buffers.attention, own.mixed, rows, skip, mixer.scale, window,
            sinks=sinks, gates=own.qkv if mixer.gated else None, positions=self._capacity,
        )  # fmt: skip
        multiply(own.mixed, *out, own.out, rows, skip)

    def convolve(
        self, index: int, mixer: ShortConv, buffers: Buffers, own: Between[Tensor], at: Placed, skip: Tensor | None
    ) -> None:
        """Write the rows' entries of layer `index`, and its output to `own.out`, as `mix`."""
        weights, rows = self._weights, at.rows
        multiply(buffers.x, *weights.products[mixer.mix], own.qkv, rows, skip)
        short_conv(
            own.qkv, weights.vectors[mixer.convolution], at.start, at.length, at.path, *self.entries[index], own.mixed,
            rows, skip, self._capacity,
        )  # fmt: skip
        multiply(own.mixed, *weights.products[mixer.out], own.out, rows, skip)

    def reusable(self, length: int, furthest: int) -> int:
        """Return the most tokens, up to `length`, after which a text may go on; `furthest` positions have been written.

        A pass from there attends to entries of a window that nothing has overwritten yet.
        """
        gone = any(furthest - entries > max(0, length + 1 - window) for entries, window in self._rings)
        return 0 if gone else length

    def _norm(self, norm: Norm | None) -> NormOf | None:
        return None if norm is None else (self._weights.norms[norm], norm.eps)

    def keep(self, state: VerifyState, places: Tensor | None) -> None:
        """After `commit`, move the KV entries of the accepted nodes together (`kernels.keep`)."""
        for keys, values in self.caches.values():
            keep(keys, values, state, places)

    def memory(self) -> int:
        """Bytes of caches and tables."""
        turns = (table for pair in self._turns.values() for table in pair)
        return sum(t.nbytes for t in (*self.caches.values(), *turns, *self._tempers.values()))


def _turn(mixer: Attention) -> tuple[Rope | None, int]:
    """The rope of a mixer, and the values of a head that it turns."""
    return mixer.rope, mixer.rotary_dim
