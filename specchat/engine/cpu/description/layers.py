"""Layers of a model as steps of the compiled pass, and spans of rows; layers may differ in shape and parts."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.description.operations import CPU
from specchat.engine.cpu.description.steps import EITHER, Arrays, StepList
from specchat.engine.cpu.layers import passes
from specchat.engine.cpu.primitives.records import STEP, Structure
from specchat.engine.model.tree_layout import Layout
from specchat.engine.program.ops import MakeInputs, Op

FLOAT_BYTES = 4


class Layers:
    """The steps of layers, which keep alive the arrays that they point to.

    Attributes:
        steps: STEP [steps].
    """

    def __init__(self, layers: Sequence[Sequence[Op]], arrays: Arrays, inputs: MakeInputs | None = None) -> None:
        """Describe the operations of `layers`, and compile their code; `inputs` makes those of all layers by token."""
        made = StepList(arrays)
        made.layer = len(layers)  # the row of parts that every pass has
        if inputs:
            CPU.run(inputs, made)
        for layer, ops in enumerate(layers):
            keep = 3 * len(layers) + EITHER, passes.KEEP_STATES, layer
            made.made.append(keep)
            made.layer = layer
            for op in ops:
                made.half = op.half
                CPU.run(op.kind, made)
        made.made.append((3 * len(layers) + EITHER, passes.KEEP_STATES, len(layers)))
        rows = [(part, code, own.address if isinstance(own, Structure) else own) for part, code, own in made.made]
        self.steps = np.array(rows, STEP)
        self._held, self._mixers = made, made.mixers
        self._first = [[part.ctypes.data for part in pair] for pair in arrays.cache]
        """Addresses of the keys and values of each layer."""
        self._rows = [keys.strides[1] for keys, _ in arrays.cache]
        """Bytes of a key or value of each layer."""

    def begin_at(self, bases: Sequence[int]) -> None:
        """Let the cache of each layer begin at a position: the pass goes by addresses of position 0."""
        for mixer, base, (keys, values), row in zip(self._mixers, bases, self._first, self._rows, strict=True):
            if "keys" in mixer:
                mixer.set(keys=keys - base * row, values=values - base * row)

    def use_tree_scratch(self, scratch: Sequence[NDArray[Any]]) -> None:
        """Keep the entries of trees in `scratch`, of `PassBuffers.make_tree_scratch`."""
        for mixer, layer_scratch in zip(self._mixers, scratch, strict=True):
            mixer.set(tree_scratch=layer_scratch)
            if "values_offset" in mixer:
                mixer.set(values_offset=layer_scratch[0].nbytes // FLOAT_BYTES)


class PassSpans(NamedTuple):
    """Arguments `spans`, `ancestors` and `copies` of a pass; the rows end `reach` positions after the start."""

    spans: NDArray[np.int64]
    ancestors: NDArray[np.int64]
    reach: int
    rows: int
    copies: NDArray[np.int64] | None = None


def pass_spans(layout: Layout) -> PassSpans:
    """Convert a layout."""
    ends = list(accumulate(map(len, layout.ancestors), initial=0))
    spans = zip(layout.depths, layout.lengths, ends, ends[1:], strict=False)
    ancestors = [row for rows in layout.ancestors for row in rows]
    reach = max(depth + length for depth, length in zip(layout.depths, layout.lengths, strict=True))
    return PassSpans(np.array(list(spans), np.int64), np.array(ancestors, np.int64), reach, sum(layout.lengths))


def spans_apart(positions: Sequence[int], copies: Sequence[int]) -> PassSpans:
    """Rows of as many texts, each at its position of a copy of the cache, which begins so many bytes after it."""
    spans = [(position, 1, 0, 0) for position in positions]
    none = np.empty(0, np.int64)
    return PassSpans(np.array(spans, np.int64), none, 1 + max(positions), len(spans), np.array(copies, np.int64))
