"""Recurrent states with a log of what each token changed, so that a text is rolled back as in a KV cache.

A token changes a state by S = g S + k u^T. States are held before the first entry of the log and before the last pass;
those at any position between are made again from the entries, bit for bit.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specchat.engine.memory.state_need import BACK, PLANES, SLACK, SLOTS, pieces, width
from specchat.engine.recipe import Delta

BASE, TIP, FOLD = range(3)
"""Indices into `positions`: of the states in each plane, and of those that the first one has after the next pass."""
NOWHERE = 1 << 62
"""Position of a plane that holds no states."""


class LogEntry(NamedTuple):
    """Parts of entries, views: key [..., pieces, key_dim], update [..., pieces, heads * value_dim], inputs of the
    convolution [..., pieces, those of a piece], and decays [..., pieces, heads], of the value heads of a piece."""

    key: Tensor
    update: Tensor
    inputs: Tensor
    decay: Tensor


class StateCheckpoint(NamedTuple):
    """States of a layer before a position, and the entries that its convolution still reads."""

    states: Tensor
    entries: Tensor


class StateLog:
    """The states of a layer.

    Attributes:
        states: float32 [PLANES, value_heads, key_dim, value_dim]; executors may order the values of a head otherwise.
        entries: float32 [SLOTS, `state_need.pieces`, `state_need.width`]; that of position p is at p % SLOTS.
        positions: int64 [3], see BASE; in numpy, as each pass reads them.
    """

    def __init__(self, of: Delta) -> None:
        self.of = of
        self.states = torch.zeros(PLANES, of.value_heads, of.key_dim, of.value_dim)
        self.entries = torch.zeros(SLOTS, pieces(of), width(of))
        self.positions = np.array([0, NOWHERE, 0])

    @property
    def base(self) -> int:
        """The first position that a text can go on from."""
        return int(self.positions[BASE])

    @property
    def at(self) -> int:
        """The position of the states before the last pass; NOWHERE after one over more tokens than the log holds."""
        tip = int(self.positions[TIP])
        return tip if tip >= self.base else NOWHERE

    def make_room(self, start: int, end: int, checkpoint: StateCheckpoint | None) -> None:
        """Let a pass write entries start, ..., end - 1; `checkpoint` is at `start`, if there is one.

        Raises:
            ValueError: states at `start` are gone.
        """
        base = self.base
        if start == 0 or start < base:
            if start and checkpoint is None:
                raise ValueError(f"states before position {base} are gone, and {start} goes on from some")
            base = start
            self._begin(start, checkpoint)
        # The convolution reads entries before those of BASE.
        slots = SLOTS - self.of.taps + 1
        if start - base > BACK + SLACK or end - base > slots:
            base = end - BACK if end - start > slots - BACK else start - BACK
        self.positions[FOLD] = base

    def _begin(self, start: int, checkpoint: StateCheckpoint | None) -> None:
        if checkpoint is None:
            self.states[BASE].zero_()
        else:
            self.states[BASE] = checkpoint.states
            self.entries[self.slots(start - len(checkpoint.entries), start)] = checkpoint.entries
        self.positions[BASE], self.positions[TIP] = start, NOWHERE

    def saved(self, first: int, last: int) -> Callable[[], None]:
        """A function that puts back what a pass over positions first, ..., last - 1 changes."""
        everything = first == 0 or first < self.base
        slots = torch.arange(SLOTS) if everything else self.slots(first, last)
        entries = self.entries[slots]
        # Otherwise the states after it are as good.
        before = (self.states.clone(), self.positions.copy()) if everything else None

        def put_back() -> None:
            self.entries[slots] = entries
            if before is not None:
                self.states[:], self.positions[:] = before

        return put_back

    def slots(self, first: int, last: int) -> Tensor:
        """Places of the entries of positions first, ..., last - 1."""
        return torch.arange(first, last) % SLOTS

    def put(self, entries: Tensor, start: int) -> None:
        """Write entries float32 [rows, pieces, width] from position `start` on."""
        self.entries[self.slots(start, start + len(entries))] = entries

    def parts(self, entries: Tensor) -> LogEntry:
        """The parts of entries float32 [..., pieces, width]."""
        of, heads = self.of, self.of.value_heads // self.entries.shape[1]
        values = heads * of.value_dim
        sizes = [of.key_dim, values, 2 * of.key_dim + values, heads]
        found = entries[..., : sum(sizes)].split(sizes, -1)
        return LogEntry(*found)

    def checkpoint(self) -> StateCheckpoint:
        """Copy the states before the last pass."""
        before = self.slots(max(0, self.at - self.of.taps + 1), self.at)
        return StateCheckpoint(self.states[TIP].clone(), self.entries[before])

    def resume(self, base: int, states: Tensor, entries: Tensor) -> None:
        """Take over states before position `base`, and the log from there on."""
        self.states[BASE], self.entries[:] = states, entries
        self.positions[:] = base, NOWHERE, base
