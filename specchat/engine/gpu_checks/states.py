"""A recurrent layer with its state on the device, and its reference."""

from abc import ABC, abstractmethod
from itertools import cycle

import torch
from torch import Tensor

from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.place import filled, number
from specchat.engine.gpu_checks.references import DeltaWeights, reference_delta
from specchat.engine.kernels.delta import step
from specchat.engine.kernels.delta_outputs import finish
from specchat.engine.kernels.delta_rows import GateWeights, RowText, StateInputs, convolve
from specchat.engine.kernels.delta_state import DeltaState, LogEntries, LoggedRows, chain_paths, slices
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, STATE_SLOTS
from specchat.engine.kernels.norm import NormOf
from specchat.engine.recipe import LENGTH_EPS

LONG = STATE_SLOTS + 70
"""Tokens, more than a log holds."""


class TextLayer(ABC):
    """A layer with the products of `tokens` tokens, whose outputs are of `dtype`."""

    def __init__(self, tokens: int, dtype: torch.dtype) -> None:
        self.tokens, self.dtype = tokens, dtype

    @abstractmethod
    def run(
        self,
        tokens: list[int],
        start: int,
        length: int | None = None,
        masks: Tensor | None = None,
        skip: Tensor | None = None,
    ) -> Tensor:
        """Outputs of rows of these tokens at entries `start`, ...: [rows, values]; a chain without `masks`.

        Raises:
            AssertionError: a row beyond the count was written.
        """

    @abstractmethod
    def reference(self, tokens: list[int]) -> Tensor:
        """Outputs of a text, float64."""

    def read(self, tokens: list[int], cuts: tuple[int, ...], start: int = 0) -> Tensor:
        """Outputs of a text in passes of `cuts` tokens, over and over."""
        made, at, sizes = list[Tensor](), 0, cycle(cuts)
        while at < len(tokens):
            made.append(self.run(tokens[at : at + next(sizes)], start + at))
            at += len(made[-1])
        return torch.cat(made) if made else filled(0)

    def _of(self, products: Tensor, tokens: list[int]) -> Tensor:
        """The rows of these tokens, and NaN after them."""
        padded = filled(len(products), PASS_ROWS, products.shape[2])
        padded[:, : len(tokens)] = products[:, tokens]
        return padded

    def _checked(self, out: Tensor, rows: int) -> Tensor:
        if not out[rows:].isnan().all():
            raise AssertionError("a row beyond the count was written")
        return out[:rows]


class RecurrentLayer(TextLayer):
    """A layer that forgets slowly, with what its products give for each of some tokens.

    All that it holds begins as NaN, and what a pass puts between its kernels is NaN before each.
    """

    def __init__(
        self,
        key_heads: int,
        value_heads: int,
        key_dim: int,
        value_dim: int,
        taps: int,
        tokens: int = LONG,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(tokens, dtype)
        self._shape, self._taps = (key_heads, key_dim, value_heads, value_dim), taps
        keys, values = key_heads * key_dim, value_heads * value_dim
        channels = 2 * keys + values
        self.products = place.random(2, tokens, channels + values, seed=0)
        self.gates = place.random(3, tokens, 2 * value_heads, seed=1)
        self.weights = place.random(channels, 1, taps, seed=2)
        self.rates, self.shifts = place.random(value_heads, seed=3) - 3, place.random(value_heads, seed=4)
        self.norm = NormOf(1 + place.random(value_dim, seed=5) / 4, LENGTH_EPS)
        self._width = -(-(channels + keys + values + value_heads) // 4) * 4
        self.log = filled(1, STATE_SLOTS, self._width)
        self.state = DeltaState(
            filled(2, value_heads, key_dim, value_dim),
            filled(value_heads, slices(key_dim, value_dim), 2, value=123_456, dtype=torch.int32),
            LogEntries.of(self.log[0], *self._shape),
        )

    def run(
        self,
        tokens: list[int],
        start: int,
        length: int | None = None,
        masks: Tensor | None = None,
        skip: Tensor | None = None,
    ) -> Tensor:
        (key_heads, key_dim, value_heads, value_dim), rows = self._shape, len(tokens)
        entries = LogEntries.of(filled(PASS_ROWS, self._width), *self._shape)
        shapes = (key_heads, key_dim), (value_heads, value_dim), (value_heads,)
        inputs = StateInputs(*(filled(PASS_ROWS, *shape) for shape in shapes))
        partials, gates = (self._of(part, tokens) for part in (self.products, self.gates))
        first, text = number(start), number(start if length is None else length)
        masks = chain_paths(PASS_ROWS, place.device()) if masks is None else masks
        at, both = RowText(first, text, masks, skip), LoggedRows(self.state.log, entries)
        weights = GateWeights(self.weights, None, self.rates, self.shifts)
        convolve(partials, gates, weights, at, both, inputs, rows, LENGTH_EPS)
        step(self.state, entries, inputs, at, rows, self._taps)
        out = filled(PASS_ROWS, value_heads * value_dim, dtype=self.dtype)
        finish(partials, inputs.values, self.norm, both, at, out, rows)
        return self._checked(out, rows)

    def reference(self, tokens: list[int]) -> Tensor:
        mixed, gates = (part[:, tokens].double().sum(0) for part in (self.products, self.gates))
        return reference_delta(
            mixed, gates, DeltaWeights(self.weights, self.rates, self.shifts, self.norm), self._shape[0]
        )
