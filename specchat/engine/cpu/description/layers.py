"""Layers of a model described to the compiled pass, and spans of rows; layers may differ in shape and parts."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.description.inputs import LayerInputs
from specchat.engine.cpu.description.mixtures import Mixtures
from specchat.engine.cpu.layers import attention
from specchat.engine.cpu.padding import padded_eps
from specchat.engine.cpu.primitives.records import (
    ATTENTION,
    DELTA,
    INPUT,
    LAYER,
    PRODUCT_BYTES,
    SHORT_CONV,
    Structure,
)
from specchat.engine.cpu.primitives.rowwise import CODES
from specchat.engine.memory.state_need import SLOTS, width
from specchat.engine.memory.vectors import LANES, panels_for, whole_vectors
from specchat.engine.model.rope import tempers
from specchat.engine.model.state_log import StateLog
from specchat.engine.model.tree_layout import Layout
from specchat.engine.recipe import LENGTH_EPS, Attention, Delta, Layer, Norm, ShortConv
from specchat.engine.strategy import resolved

Floats = NDArray[np.float32]
FLOAT_BYTES = 4
NORMS = "pre_mixer", "post_mixer", "pre_feed", "post_feed"
"""Norms of a layer on its rows, which LAYER names alike."""


class Layers:
    """Descriptions of layers, which keep alive the arrays that they point to.

    Attributes:
        table: address of each layer's LAYER, int64 [layers].
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        table: NDArray[Any],
        norms: Mapping[Norm, Floats],
        cache: Sequence[tuple[Floats, Floats]],
        rotations: Sequence[tuple[Floats, Floats]],
        vectors: Mapping[str, Floats],
        logs: Sequence[StateLog | None] = (),
        mixtures: Mixtures | None = None,
        inputs: LayerInputs | None = None,
    ) -> None:
        """Describe `layers`, and compile the code of their parts.

        Args:
            table: PRODUCT [>= products], of their products.
            norms: the weight of each norm, float32 [size in whole vectors].
            cache: for each layer keys and values, float32 [kv_heads, capacity, head_dim].
            rotations: for each layer the cosines and sines of `rope.tables`, float32 [capacity, rotated values].
            vectors: other tensors of the layers by name, float32 [size].
            logs: for each layer the log of its recurrent states, if it has some.
            mixtures: of layers with experts.
            inputs: of layers that have some.
        """
        self._norms, self._vectors = norms, vectors
        self._mixers: list[Structure] = []
        self._first = [[part.ctypes.data for part in pair] for pair in cache]
        """Addresses of the keys and values of each layer."""
        self._sizes = [keys.shape[2] for keys, _ in cache]
        records, first = [], table.ctypes.data
        for index, layer in enumerate(layers):
            eps, post_eps = (next((norm.eps for norm in norms), 0.0) for norms in (layer.inner_norms, layer.post_norms))
            hidden = sum(layer.mixer.out.outputs)
            of_hidden, of_post = (padded_eps(one, hidden, whole_vectors(hidden)) for one in (eps, post_eps))
            end = first + PRODUCT_BYTES * len(layer.products)
            record = Structure(
                LAYER,
                products=first,
                activation=CODES[layer.gated.activation],
                eps=of_hidden,
                post_eps=of_post,
                residual=layer.residual,
                scalar=vectors[layer.scalar][0] if layer.scalar else 1.0,
                **{
                    name: self._weight(getattr(layer, name))
                    for name in ("pre_mixer", "post_mixer", "pre_feed", "post_feed")
                },
            )
            if isinstance(layer.mixer, Attention):
                mixer, code, result = (
                    self._attention(layer.mixer, cache[index], rotations[index], eps),
                    attention.ADDRESS,
                    0,
                )
            elif isinstance(layer.mixer, Delta):
                gates, log = end - PRODUCT_BYTES, logs[index]
                assert log is not None
                mixer, result = self._delta(layer.mixer, log, gates, eps), layer.mixer.channels
                code = resolved("specchat.engine.cpu.layers.delta:ADDRESS")
            else:
                mixer, result = self._short_conv(layer.mixer, cache[index]), 2 * layer.mixer.head_dim
                code = resolved("specchat.engine.cpu.layers.short_conv:ADDRESS")
            self._mixers.append(mixer)
            record.set(mixer=mixer, mixer_code=code, result=result)
            if mixtures:
                record.set(mixture=mixtures.described(index, record, norms, vectors))
            if layer.input and inputs:
                own = {"norm": self._weight(layer.input.norm), "eps": of_hidden, "activation": record["activation"]}
                own |= {"products": end - 2 * PRODUCT_BYTES, "first": index * inputs.size}
                record.set(input=Structure(INPUT, inputs=inputs.record, **own))
            records.append(record)
            first = end
        self._held = table, records, cache
        self.table = np.array([record.address for record in records])

    def _weight(self, norm: Norm | None) -> Floats | None:
        return None if norm is None else self._norms[norm]

    def _attention(
        self, mixer: Attention, cache: tuple[Floats, Floats], rotation: tuple[Floats, Floats], eps: float
    ) -> Structure:
        (kv_heads, capacity, size), (cos, sin) = cache[0].shape, rotation
        whole = "whole_" if any(n and n.size > mixer.head_dim for n in (mixer.query_norm, mixer.key_norm)) else ""
        norms = {
            f"{whole}query_norm": mixer.query_norm,
            f"{whole}key_norm": mixer.key_norm,
            "value_norm": mixer.value_norm,
        }
        factors = tempers(mixer, len(cos))
        return Structure(
            ATTENTION,
            heads=mixer.heads,
            kv_heads=kv_heads,
            size=size,
            capacity=capacity,
            keys=cache[0],
            values=cache[1],
            cos=cos,
            sin=sin,
            turned=cos.shape[1],
            window=mixer.window,
            gated=mixer.gated,
            shared=mixer.share is not None,
            temper=None if factors is None else factors.numpy(),
            sinks=self._vectors[mixer.sinks] if mixer.sinks else None,
            eps=padded_eps(eps, mixer.head_dim, size),
            scale=mixer.scale,
            **{name: self._weight(norm) for name, norm in norms.items()},
        )

    def _delta(self, delta: Delta, log: StateLog, gates: int, eps: float) -> Structure:
        """Describe recurrent states with their log; `gates` is the address of the gates' product."""
        keys, vectors = delta.key_heads * delta.key_dim, self._vectors
        taps = vectors[delta.convolution][:, 0].T
        kinds = [kind.reshape(delta.taps, delta.key_heads, -1) for kind in np.split(taps, [keys, 2 * keys], 1)]
        of_keys = np.full(delta.key_dim, delta.key_dim**-0.5, np.float32)
        rates, shifts = (
            _floats(np.pad(values, (0, -delta.value_heads % LANES)))
            for values in (np.exp(vectors[delta.decay]), vectors[delta.shift])
        )
        return Structure(
            DELTA,
            key_heads=delta.key_heads,
            sharing=delta.sharing,
            key_dim=delta.key_dim,
            value_dim=delta.value_dim,
            taps=delta.taps,
            channels=delta.channels,
            mixed=LANES * panels_for(sum(delta.mix.outputs)),
            gates=gates,
            states=log.states.numpy(),
            entries=log.entries.numpy(),
            entry=width(delta),
            held=SLOTS,
            positions=log.positions,
            weights=_floats(np.concatenate(kinds, 2).transpose(1, 0, 2)),
            rates=rates,
            shifts=shifts,
            query_length=_floats(of_keys * delta.key_dim**-0.5),
            key_length=of_keys,
            norm=self._weight(delta.norm),
            length_eps=LENGTH_EPS / delta.key_dim,
            eps=eps,
        )

    def _short_conv(self, conv: ShortConv, cache: tuple[Floats, Floats]) -> Structure:
        weights = _floats(self._vectors[conv.convolution][:, 0].T)
        return Structure(
            SHORT_CONV, taps=conv.taps, half=conv.head_dim, weights=weights, keys=cache[0], values=cache[1]
        )

    def begin_at(self, bases: Sequence[int]) -> None:
        """Let the cache of each layer begin at a position: the pass goes by addresses of position 0."""
        for mixer, base, (keys, values), size in zip(self._mixers, bases, self._first, self._sizes, strict=True):
            if "keys" in mixer:
                before = FLOAT_BYTES * base * size
                mixer.set(keys=keys - before, values=values - before)

    def use_tree_scratch(self, scratch: Sequence[Floats]) -> None:
        """Keep the entries of trees in `scratch`, of `PassBuffers.make_tree_scratch`."""
        for mixer, layer_scratch in zip(self._mixers, scratch, strict=True):
            mixer.set(tree_scratch=layer_scratch)
            if "values_offset" in mixer:
                mixer.set(values_offset=layer_scratch[0].size)


def _floats(values: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(values, np.float32)


class PassSpans(NamedTuple):
    """Arguments `spans` and `ancestors` of a pass; the rows end `reach` positions after the start."""

    spans: NDArray[np.int64]
    ancestors: NDArray[np.int64]
    reach: int
    rows: int


def pass_spans(layout: Layout) -> PassSpans:
    """Convert a layout."""
    ends = list(accumulate(map(len, layout.ancestors), initial=0))
    spans = zip(layout.depths, layout.lengths, ends, ends[1:], strict=False)
    ancestors = [row for rows in layout.ancestors for row in rows]
    reach = max(depth + length for depth, length in zip(layout.depths, layout.lengths, strict=True))
    return PassSpans(np.array(list(spans), np.int64), np.array(ancestors, np.int64), reach, sum(layout.lengths))
