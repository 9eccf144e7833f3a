"""Reads the rows of a picture that attend to each other: a layer has the entries of all before any row attends."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from specchat.engine.model.aux_states import AuxHiddenStates
from specchat.engine.model.passes import NOTHING, PassRows, Skip
from specchat.engine.pictures.rows import PictureRows
from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.recipe import Attention
from specchat.engine.weights.config import ModelConfig


class RunsLayers(Protocol):
    """A decoder, as `decoder.CachedDecoder`, or passes on a device."""

    config: ModelConfig
    compiled: ClassVar[bool]

    @property
    def aux_states(self) -> AuxHiddenStates | None:
        """Recorded hidden states; None: there are none, or passes record them."""
        ...

    @property
    def block(self) -> int:
        """Most rows of a pass."""
        ...

    def run_layers(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = ...) -> Tensor:
        """Run layers over rows float32 [rows, hidden]; return their outputs."""
        ...


def stretches(tokens: Sequence[int], pictures: PictureRows | None) -> Iterator[tuple[slice, bool]]:
    """Parts of `tokens` by turns: text, and whole pictures whose rows attend to each other, for which it is True."""
    begun, at = 0, 0
    while pictures is not None and at < len(tokens):
        if at == begun and max(tokens[at:]) < FIRST:
            break
        if 0 < (cells := pictures.mutual(tokens[at])) <= len(tokens) - at:
            if begun < at:
                yield slice(begun, at), False
            yield slice(at, at + cells), True
            begun = at = at + cells
        else:
            at += 1
    if begun < len(tokens):
        yield slice(begun, len(tokens)), False


def read_picture(model: RunsLayers, x: Tensor, whole: PassRows, skip: Skip) -> Tensor:
    """Write the KV entries of a picture's rows, and return their hidden states.

    Layer by layer, as it may have more rows than a pass: where rows attend to later ones, a first round leaves their
    entries alone. Row r is bit for bit what it is in passes of any width.

    Args:
        x: float32 [rows, hidden] before the first layer.

    Returns:
        float32 [rows, hidden], before the final norm.
    """
    count, start, width = len(x), whole.start, model.block
    parts = [slice(first, first + width) for first in range(0, count, width)]
    placed = [(part, PassRows(whole.tokens[part], start + part.start, until=start + count)) for part in parts]
    # Rows of the last pass have entries before any of them attends, unless each row is computed alone.
    early = placed[:-1] if model.compiled else placed
    states = model.aux_states if skip == NOTHING else None
    for index, layer in enumerate(model.config.recipe.layers):
        if states is not None and index in states.layers:
            states.put(index, x, start, None)
        mixer, this, after = layer.mixer, range(index, index + 1), torch.empty_like(x)
        mutual = isinstance(mixer, Attention) and mixer.mutual
        for part, rows in early if mutual and layer.share is None else ():
            model.run_layers(x[part], this, rows, Skip(mlp=frozenset(this)))
        for part, rows in reversed(placed) if mutual else placed:
            after[part] = model.run_layers(x[part], this, rows, skip)
        x = after
    if states is not None and (last := model.config.layers) in states.layers:
        states.put(last, x, start, None)
    return x
