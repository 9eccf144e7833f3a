"""The log of states of a layer as the reference reads and writes it, row by row."""

from collections.abc import Sequence
from operator import itemgetter

import torch
from torch import Tensor

from specchat.engine.model.state_log import BASE, FOLD, TIP, StateLog
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.reference.delta import Past, StateChange, advanced


class Recurrence:
    """A layer's states during a pass."""

    def __init__(self, log: StateLog) -> None:
        self._of, self._log = log.of, log
        self._parts = log.entries.shape[1] // log.of.key_heads
        """Pieces of a key head."""
        self._nodes = torch.zeros(MAX_TREE_NODES, *log.entries.shape[1:])
        """Entries of a tree's nodes."""
        self._start = self._at = 0
        """The positions of the pass and after its last row."""
        self._states = log.states[BASE]
        """The states after the last row."""

    def begin(self, start: int) -> None:
        """Begin a pass: make the states before it, and fold entries as planned."""
        log = self._log
        base, tip, fold = log.positions.tolist()
        plane, since = (TIP, tip) if base <= tip <= start else (BASE, base)
        self._at, self._states = start, self._replayed(log.states[plane], since, start)
        if base < fold <= start:
            log.states[BASE] = self._replayed(log.states[BASE], base, fold)
            log.positions[BASE] = fold
        log.states[TIP], log.positions[TIP], self._start = self._states, start, start

    def past(self, position: int, ancestors: Sequence[int], node: int | None) -> Past:
        """The past of a row at `position`; entries of `ancestors`, nodes of a tree, are put right before it.

        The row's own entry is kept, as that of `node` too if it is one of a tree's.
        """
        log, of = self._log, self._of
        if ancestors:
            log.entries[log.slots(position - len(ancestors), position)] = self._nodes[list(ancestors)]
        if position != self._at:
            self._states = self._replayed(log.states[TIP], self._start, position)
        if position == log.positions[FOLD] > log.base:
            log.states[BASE], log.positions[BASE] = self._states, position
        before = log.slots(max(0, position - of.taps + 1), position)
        known = self._channels(log.parts(log.entries[before]).inputs)
        inputs = torch.cat([torch.zeros(of.taps - 1 - len(before), of.channels), known])

        def keep(own: Tensor, change: StateChange, states: Tensor) -> None:
            entry = log.entries[position % len(log.entries)]
            parts = log.parts(entry)
            parts.key[:], parts.inputs[:] = change.key.repeat_interleave(self._parts, 0), self._by_piece(own)
            pieces = of.key_heads * self._parts
            parts.update[:], parts.decay[:] = (each.view(pieces, -1) for each in (change.update, change.decay))
            if node is not None:
                self._nodes[node] = entry
            self._at, self._states = position + 1, states

        return Past(self._states, inputs, keep)

    def keep(self, nodes: Sequence[int], start: int) -> None:
        """Copy the entries of a tree's nodes to the log, from position `start` on."""
        self._log.put(self._nodes[list(nodes)], start)

    def _replayed(self, states: Tensor, first: int, last: int) -> Tensor:
        """States before position `last`, of those before `first`."""
        of, log = self._of, self._log
        for slot in log.slots(first, last):
            key, update, _, decay = log.parts(log.entries[slot])
            change = StateChange(key[:: self._parts], update.reshape(of.value_heads, -1), decay.reshape(-1))
            states = advanced(of, states, change)
        return states

    def _by_piece(self, channels: Tensor) -> Tensor:
        """Channels float32 [channels] by the pieces that read them: those of a query and a key, and of values."""
        of = self._of
        kinds = [channels.narrow(-1, *span) for span in of.spans]
        query, key = (kind.view(of.key_heads, -1).repeat_interleave(self._parts, 0) for kind in kinds[:2])
        return torch.cat([query, key, kinds[2].view(len(key), -1)], -1)

    def _channels(self, by_piece: Tensor) -> Tensor:
        """The inverse of `_by_piece`, for each of several tokens."""
        of = self._of
        query, key, value = by_piece.split([of.key_dim, of.key_dim, by_piece.shape[-1] - 2 * of.key_dim], -1)
        kinds = query[:, :: self._parts], key[:, :: self._parts], value
        found = sorted(zip(of.spans, kinds, strict=True), key=itemgetter(0))
        return torch.cat([kind.flatten(-2) for _, kind in found], -1)
