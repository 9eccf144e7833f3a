"""Layers and rows described to the compiled pass: two rows of numbers a layer, and spans of rows.

So one signature serves all models, and layers may differ in shape, position embeddings and norms.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.deltas import Deltas
from specchat.engine.cpu.gates import CODES
from specchat.engine.cpu.layer_inputs import LayerInputs
from specchat.engine.cpu.mixtures import Mixtures
from specchat.engine.cpu.padding import padded_eps
from specchat.engine.cpu.products import COLUMNS
from specchat.engine.cpu.short_convs import ShortConvs
from specchat.engine.memory.vectors import whole_vectors
from specchat.engine.model.rope import tempers
from specchat.engine.model.tree_layout import Layout
from specchat.engine.recipe import Attention, Layer, Norm

Floats = NDArray[np.float32]
FLOAT_BYTES = 4

(
    PRODUCTS, HEADS, KV_HEADS, SIZE, CAPACITY, KEYS, VALUES, TREE_SCRATCH, VALUES_OFFSET, COS, SIN, TURNED,
    PRE_MIXER, POST_MIXER, PRE_FEED, POST_FEED, QUERY_NORM, KEY_NORM, VALUE_NORM, ALL_HEADS,
    WINDOW, TEMPER, SINKS, ACTIVATION, MIXTURE, SHARED, INPUTS, INPUT_PRODUCTS, INPUT_NORM, GATED, DELTA, SHORT_CONV,
    FIELDS,
) = range(33)  # fmt: skip
"""Columns of the integers: shapes, and addresses (0 for nothing).

PRODUCTS is the address of the layer's rows in the table of products, four of them or those of its experts, which
MIXTURE describes (`mixtures.py`). TREE_SCRATCH is the address of the tree's keys; its values come VALUES_OFFSET
elements later. TURNED values of each head are rotated, and GATED is 1 if gates follow queries. ALL_HEADS is 1 if a norm
of queries or keys is over all heads; ACTIVATION is a code of `gates.CODES`. SHARED is 1 if the KV entries are those of
a layer before. INPUTS describes the inputs of layers (`layer_inputs.py`), which this layer adds by the products at
INPUT_PRODUCTS. A layer with recurrent states has a row of `deltas.Deltas` at DELTA, and nothing of attention. One
with a short convolution has a row of `short_convs.ShortConvs` at SHORT_CONV, and entries.
"""
EPS, POST_EPS, HEAD_EPS, SCALE, RESIDUAL, SCALAR, FACTORS = range(7)
"""Columns of the floats. POST_EPS is that of the norms after the halves, HEAD_EPS of those
of heads, EPS of the others."""


class Descriptors:
    """Descriptions of layers, which keep alive the arrays that they point to.

    Attributes:
        integers: int64 [layers, FIELDS].
        floats: float32 [layers, FACTORS].
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        table: NDArray[np.int64],
        norms: Mapping[Norm, Floats],
        cache: Sequence[tuple[Floats, Floats]],
        turns: Sequence[tuple[Floats, Floats]],
        vectors: Mapping[str, Floats],
        mixtures: Mixtures | None = None,
        inputs: LayerInputs | None = None,
        deltas: Deltas | None = None,
        short_convs: ShortConvs | None = None,
    ) -> None:
        """Describe `layers`.

        Args:
            table: int64 [>= products, COLUMNS], of their products.
            norms: the weight of each norm, float32 [size in whole vectors].
            cache: for each layer keys and values, float32 [kv_heads, capacity, head_dim].
            turns: for each layer the cosines and sines of `rope.tables`, float32 [capacity, rotated values of a head].
            vectors: other tensors of the layers by name, float32 [size].
            mixtures: of layers with experts.
            inputs: of layers that have some.
            deltas: of layers with recurrent states.
            short_convs: of layers with short convolutions.
        """
        self._held = mixtures, inputs, deltas, short_convs
        pairs = (part for pair in (*cache, *turns) for part in pair)
        self._kept: list[NDArray[Any]] = [table, *norms.values(), *vectors.values(), *pairs]
        self.integers = np.zeros((len(layers), FIELDS), np.int64)
        self.floats = np.zeros((len(layers), FACTORS), np.float32)

        self._first = np.array([[part.ctypes.data for part in pair] for pair in cache], np.int64)
        """Addresses of the keys and values of each layer."""

        def weight(norm: Norm | None) -> int:
            return 0 if norm is None else norms[norm].ctypes.data

        first = table.ctypes.data
        for index, layer in enumerate(layers):
            mixer, row = layer.mixer, self.integers[index]
            row[PRODUCTS], first = first, first + table.itemsize * COLUMNS * len(layer.products)
            row[MIXTURE] = mixtures.addresses[index] if mixtures else 0
            row[DELTA] = deltas.addresses[index] if deltas else 0
            row[SHORT_CONV] = short_convs.addresses[index] if short_convs else 0
            row[INPUTS] = inputs.address if inputs else 0
            if layer.input:
                row[INPUT_PRODUCTS], row[INPUT_NORM] = first - 2 * table.itemsize * COLUMNS, weight(layer.input.norm)
            row[PRE_MIXER], row[POST_MIXER] = weight(layer.pre_mixer), weight(layer.post_mixer)
            row[PRE_FEED], row[POST_FEED] = weight(layer.pre_feed), weight(layer.post_feed)
            row[ACTIVATION] = CODES[layer.gated.activation]
            scalar = vectors[layer.scalar][0] if layer.scalar else 1.0
            eps, post_eps = (next((norm.eps for norm in norms), 0.0) for norms in (layer.inner_norms, layer.post_norms))
            hidden = sum(mixer.out.outputs)
            of_hidden, of_post = (padded_eps(one, hidden, whole_vectors(hidden)) for one in (eps, post_eps))
            self.floats[index] = of_hidden, of_post, eps, 1.0, layer.residual, scalar
            keys, (cos, sin) = cache[index][0], turns[index]
            (row[KV_HEADS], row[CAPACITY], row[SIZE]), (row[KEYS], row[VALUES]) = keys.shape, self._first[index]
            if not isinstance(mixer, Attention):
                continue
            row[HEADS], row[COS], row[SIN] = mixer.heads, cos.ctypes.data, sin.ctypes.data
            row[GATED], row[TURNED], row[WINDOW] = mixer.gated, cos.shape[1], mixer.window
            row[QUERY_NORM], row[KEY_NORM] = weight(mixer.query_norm), weight(mixer.key_norm)
            row[VALUE_NORM] = weight(mixer.value_norm)
            row[ALL_HEADS] = any(n is not None and n.size > mixer.head_dim for n in (mixer.query_norm, mixer.key_norm))
            if (factors := tempers(mixer, len(cos))) is not None:
                self._kept.append(tempered := factors.numpy())
                row[TEMPER] = tempered.ctypes.data
            row[SINKS] = vectors[mixer.sinks].ctypes.data if mixer.sinks else 0
            row[SHARED] = mixer.share is not None
            self.floats[index, [HEAD_EPS, SCALE]] = padded_eps(eps, mixer.head_dim, keys.shape[2]), mixer.scale

    def begin_at(self, bases: Sequence[int]) -> None:
        """Let the cache of each layer begin at a position: the pass goes by addresses of position 0."""
        for row, base, first in zip(self.integers, bases, self._first, strict=True):
            row[[KEYS, VALUES]] = first - FLOAT_BYTES * base * row[SIZE]

    def use_tree_scratch(self, scratch: Sequence[Floats]) -> None:
        """Keep the entries of trees in `scratch`, of `Workspace.make_tree_scratch`."""
        for row, layer_scratch in zip(self.integers, scratch, strict=True):
            row[TREE_SCRATCH], row[VALUES_OFFSET] = layer_scratch.ctypes.data, layer_scratch[0].size


class PassSpans(NamedTuple):
    """Arguments `spans` and `ancestors` of `passes.layers`; the rows end `reach` positions after the start."""

    spans: NDArray[np.int64]
    ancestors: NDArray[np.int64]
    reach: int


def pass_spans(layout: Layout) -> PassSpans:
    """Convert a layout."""
    ends = list(accumulate(map(len, layout.ancestors), initial=0))
    spans = zip(layout.depths, layout.lengths, ends, ends[1:], strict=False)
    ancestors = [row for rows in layout.ancestors for row in rows]
    reach = max(depth + length for depth, length in zip(layout.depths, layout.lengths, strict=True))
    return PassSpans(np.array(list(spans), np.int64), np.array(ancestors, np.int64), reach)
