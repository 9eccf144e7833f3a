"""Recurrent states of a model on the device, in static buffers, and their checkpoints in main memory."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.attention import Placed
from specchat.engine.device.skips import ALIGNED
from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels.delta import step
from specchat.engine.kernels.delta_outputs import finish
from specchat.engine.kernels.delta_rows import GateWeights, RowText, StateInputs, convolve
from specchat.engine.kernels.delta_state import (
    BASE,
    NOWHERE,
    TIP,
    DeltaState,
    LogEntries,
    LoggedRows,
    chain_paths,
    keep_entries,
    slices,
)
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, PROMPT_ROWS, STATE_SLOTS
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.memory.gpu_states import width
from specchat.engine.memory.state_need import CHECKPOINTS, PLANES
from specchat.engine.recipe import LENGTH_EPS, Delta, Recipe


class StatesCheckpoint(NamedTuple):
    """States of all layers at a position, and what their convolutions read before it, in main memory."""

    states: Tensor
    inputs: Tensor


def reachable(length: int, base: int, checkpoints: Sequence[int]) -> int:
    """The most tokens, up to `length`, that states from position `base` on or at `checkpoints` allow."""
    return length if length >= base else max((at for at in checkpoints if at <= length), default=0)


class PromptGroups:
    """Groups of PASS_ROWS rows of a prompt's pass, which step the states one after another."""

    def __init__(self, device: torch.device) -> None:
        firsts = torch.arange(0, PROMPT_ROWS, PASS_ROWS, dtype=torch.int32)
        self._firsts = firsts[:, None].repeat(1, ALIGNED).to(device)
        """First row of each."""
        self.starts, self.beyond = torch.zeros_like(self._firsts), torch.zeros_like(self._firsts)
        """KV entries of these rows, and flags of those after the last row that counts."""

    def begin(self, start: Tensor, last: Tensor) -> None:
        """Begin a pass from KV entry `start` on; `last` is the last row that counts."""
        torch.add(self._firsts, start, out=self.starts)
        self.beyond.copy_(self._firsts > last)


class Recurrent:
    """The recurrent layers of a model, which are alike, with their states.

    Attributes:
        states: float32 [layers, PLANES, value_heads, key_dim, value_dim].
        positions: int32 [layers, value_heads, slices, PLANES], of the states.
        entries: float32 [layers, STATE_SLOTS, width], the logs.
    """

    def __init__(self, recipe: Recipe, weights: ModelWeights, device: torch.device) -> None:
        mixers = recipe.recurrent
        self._of = of = mixers[0]
        self._weights = weights

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, device=device, dtype=dtype)

        programs = slices(of.key_dim, of.value_dim)
        self.states = zeros(len(mixers), PLANES, of.value_heads, of.key_dim, of.value_dim)
        self.positions = zeros(len(mixers), of.value_heads, programs, PLANES, dtype=torch.int32)
        self.entries = zeros(len(mixers), STATE_SLOTS, width(of))
        indices = [index for index, layer in enumerate(recipe.layers) if isinstance(layer.mixer, Delta)]
        held = zip(indices, self.states, self.positions, self.entries, strict=True)
        self._layers = {
            index: DeltaState(states, positions, self._parts(log)) for index, states, positions, log in held
        }
        """By the index of a layer."""
        # Between the kernels of a layer.
        self._rows = self._parts(zeros(PASS_ROWS, width(of)))
        query, values, writes = (of.key_heads, of.key_dim), (of.value_heads, of.value_dim), (of.value_heads,)
        self._between = StateInputs(*(zeros(PASS_ROWS, *shape) for shape in (query, values, writes)))
        self._chain, self._at = chain_paths(PASS_ROWS, device), zeros(1, dtype=torch.int32)
        self.groups = PromptGroups(device)
        self._checkpoints: dict[int, StatesCheckpoint] = {}
        """By position, in the order in which they were taken."""

    def _parts(self, entries: Tensor) -> LogEntries:
        of = self._of
        return LogEntries.of(entries, of.key_heads, of.key_dim, of.value_heads, of.value_dim)

    def advance(
        self,
        index: int,
        of: Delta,
        products: Tensor,
        gates: Tensor | None,
        out: Tensor,
        at: Placed,
        skip: Tensor | None,
    ) -> None:
        """Step the states of layer `index`, and write the inputs of its last product to `out`.

        Args:
            products, gates: partial sums of the products `mix` and `gates`, if there is one.
            out: compute dtype [PROMPT_ROWS, inputs].
        """
        if at.rows > PASS_ROWS:
            for group, first in enumerate(range(0, at.rows, PASS_ROWS)):
                start, some = self.groups.starts[group, :1], slice(first, first + PASS_ROWS)
                own = Placed(min(PASS_ROWS, at.rows - first), start, start, at.offsets, None)
                of_group = products[:, some], None if gates is None else gates[:, some], out[some]
                self.advance(index, of, *of_group, own, self.groups.beyond[group, :1])
            return
        state, rows, vectors, kind = self._layers[index], at.rows, self._weights.vectors, of.selective
        paths = self._chain if at.path is None else at.path
        last = products[..., products.shape[2] - of.value_heads :] if gates is None else gates
        bias = vectors[kind.conv_bias] if kind and kind.conv_bias else None
        weights = GateWeights(vectors[of.convolution], bias, vectors[of.decay], vectors[of.shift])
        places, entries = RowText(at.start, at.length, paths, skip), LoggedRows(state.log, self._rows)
        convolve(products, last, weights, places, entries, self._between, rows, None if kind else LENGTH_EPS)
        step(state, self._rows, self._between, places, rows, of.taps, vectors[kind.skip] if kind else None)
        norm = vectors[kind.weight] if kind else self._weights.norms[of.norm], of.norm.eps
        finish(products, self._between.values, norm, entries, places, out, rows, of.key_heads if kind else None)

    def keep(self, state: VerifyState, places: Tensor | None) -> None:
        """After `commit`, move the entries of the accepted nodes together, as `DeviceDecoder.keep`."""
        keep_entries(self.entries, state, places)

    @property
    def base(self) -> int:
        """The first position that a text can go on from without a checkpoint. Waits for the device."""
        return int(max(self.positions.select(-1, BASE).flatten().tolist()))

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Positions of the checkpoints."""
        return tuple(self._checkpoints)

    def set_back(self, length: int) -> int:
        """Go on from the first `length` tokens, or from as many fewer as the states allow; return how many.

        Waits for the device.
        """
        if length < (base := self.base):
            length = reachable(length, base, self.checkpoints)
            if length:
                self._restore(length, self._checkpoints[length])
        self._checkpoints = {at: one for at, one in self._checkpoints.items() if at <= length}
        return length

    def tail(self) -> list[Tensor]:
        """States, their positions, the log and the newest checkpoint, views."""
        newest = list(self._checkpoints.values())[-1:]
        return [self.states[:, BASE], self.positions, self.entries, *(part for one in newest for part in one)]

    def resume(self, tail: Sequence[Tensor], checkpoints: Sequence[int]) -> int:
        """Take over such a tail, with the positions of its checkpoints, and return how many tensors it has."""
        for into, part in zip((self.states[:, BASE], self.positions, self.entries), tail, strict=False):
            into.copy_(part)
        self.positions.select(-1, TIP).fill_(NOWHERE)
        self._checkpoints = {at: StatesCheckpoint(tail[3].clone(), tail[4].clone()) for at in checkpoints}
        return 5 if checkpoints else 3

    def _restore(self, at: int, checkpoint: StatesCheckpoint) -> None:
        self.states[:, BASE].copy_(checkpoint.states)
        self._inputs.index_copy_(1, self._before(at), checkpoint.inputs.to(self.entries.device))
        self.positions.select(-1, BASE).fill_(at)
        self.positions.select(-1, TIP).fill_(NOWHERE)

    def checkpoint(self, at: int) -> None:
        """Hold the states after the first `at` tokens, and let go of the oldest. Waits for the device."""
        if at in self._checkpoints:
            return
        self._at.fill_(at)
        self.positions.select(-1, TIP).fill_(NOWHERE)
        for state in self._layers.values():
            step(state, self._rows, self._between, RowText(self._at, self._at, self._chain), 0, self._of.taps)
        inputs = self._inputs.index_select(1, self._before(at)).cpu()
        self._checkpoints[at] = StatesCheckpoint(self.states[:, TIP].to("cpu", copy=True), inputs)
        for old in list(self._checkpoints)[:-CHECKPOINTS]:
            del self._checkpoints[old]

    @property
    def _inputs(self) -> Tensor:
        """Inputs of the convolutions, a view [layers, STATE_SLOTS, channels]."""
        return self.entries.narrow(-1, 0, self._of.channels)

    def _before(self, at: int) -> Tensor:
        """Slots of the entries that a convolution reads before position `at`."""
        return torch.arange(max(0, at - self._of.taps + 1), at, device=self.entries.device) % STATE_SLOTS

    def memory(self) -> int:
        """Bytes held on the device."""
        held = self.states, self.positions, self.entries, self._rows.whole
        return sum(t.nbytes for t in (*held, *self._between, self._chain))
