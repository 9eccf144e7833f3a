"""Gated DeltaNet in plain torch: float32, differentiable, any leading dimensions.

Tokens take the step form one after another, also in prompts: a form in chunks rounds otherwise.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from specchat.engine.model.state_log import BASE, FOLD, TIP, StateLog
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.recipe import LENGTH_EPS, Delta
from specchat.engine.reference.tensors import Tensors


class StateChange(NamedTuple):
    """The change of states by a token: float32 key [..., key_heads, key_dim], update [..., value_heads, value_dim],
    decay [..., value_heads]."""

    key: Tensor
    update: Tensor
    decay: Tensor


class Past(NamedTuple):
    """The states that earlier tokens left, and where those of the rows go.

    Attributes:
        states: float32 [..., value_heads, key_dim, value_dim].
        inputs: those of the convolution, float32 [..., taps - 1, channels].
        keep: called after each row with its inputs of the convolution, float32 [..., channels], what it changed, and
            the states.
    """

    states: Tensor
    inputs: Tensor
    keep: Callable[[Tensor, StateChange, Tensor], None] | None = None


def empty(of: Delta, leading: tuple[int, ...], device: torch.device) -> Past:
    """The past of a text's first token; `leading` are the dimensions before its rows."""
    states = torch.zeros(*leading, of.value_heads, of.key_dim, of.value_dim, device=device)
    return Past(states, torch.zeros(*leading, of.taps - 1, of.channels, device=device))


def step_rows(of: Delta, products: Tensor, gates: Tensor, tensors: Tensors, past: Past) -> Tensor:
    """Inputs float32 [..., rows, inputs] of the last product, of rows that follow each other.

    Args:
        products, gates: of the products `mix` and `gates`, float32 [..., rows, outputs].
    """
    mixed, z = products.split([of.channels, of.value_heads * of.value_dim], -1)
    write, forget = gates.chunk(2, -1)
    write, decay = write.sigmoid(), _decay(of, forget, tensors)
    inputs = torch.cat([past.inputs, mixed], -2)
    query, key, value = _heads(of, _convolved(of, inputs, tensors))
    states, reads = past.states, []
    for row in range(products.shape[-2]):
        remembered = states * decay[..., row, :, None, None]
        found = (remembered * _shared(of, key[..., row, :, :])[..., None]).sum(-2)
        update = (value[..., row, :, :] - found) * write[..., row, :, None]
        change = StateChange(key[..., row, :, :], update, decay[..., row, :])
        states = advanced(of, states, change)
        if past.keep is not None:
            past.keep(mixed[..., row, :], change, states)
        reads.append((states * _shared(of, query[..., row, :, :])[..., None]).sum(-2))
    outputs = tensors.norm(of.norm)(torch.stack(reads, -3)) * silu(z.unflatten(-1, (of.value_heads, -1)))
    return outputs.flatten(-2)


def advanced(of: Delta, states: Tensor, change: StateChange) -> Tensor:
    """States after a token: g S + k u^T, always by the same operations."""
    forgot = states * change.decay[..., None, None]
    return torch.addcmul(forgot, _shared(of, change.key)[..., None], change.update[..., None, :])


def _shared(of: Delta, heads: Tensor) -> Tensor:
    """Key heads float32 [..., key_heads, key_dim] by value head."""
    return heads.repeat_interleave(of.sharing, -2)


def _decay(of: Delta, forget: Tensor, tensors: Tensors) -> Tensor:
    """Factors on the states, float32 [..., rows, value_heads]."""
    return torch.exp(-tensors.vector(of.decay).exp() * softplus(forget + tensors.vector(of.shift)))


def _convolved(of: Delta, inputs: Tensor, tensors: Tensors) -> Tensor:
    """Channels float32 [..., rows, channels] after the convolution of [..., taps - 1 + rows, channels] and silu."""
    taps, rows = tensors.vector(of.convolution)[:, 0], inputs.shape[-2] - of.taps + 1
    seen = [inputs[..., tap : tap + rows, :] * taps[:, tap] for tap in range(of.taps)]
    return silu(torch.stack(seen).sum(0))


def _heads(of: Delta, channels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys float32 [..., rows, key_heads, key_dim] and values [..., rows, value_heads, value_dim]."""
    keys = of.key_heads * of.key_dim
    query, key, value = channels.split([keys, keys, of.value_heads * of.value_dim], -1)
    query, key = (each.unflatten(-1, (of.key_heads, -1)) for each in (query, key))
    query, key = (each * (each.square().sum(-1, keepdim=True) + LENGTH_EPS).rsqrt() for each in (query, key))
    return query * of.key_dim**-0.5, key, value.unflatten(-1, (of.value_heads, -1))


class Recurrence:
    """A layer's states during a pass."""

    def __init__(self, log: StateLog) -> None:
        self._of, self._log = log.of, log
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

        def keep(mixed: Tensor, change: StateChange, states: Tensor) -> None:
            entry = log.entries[position % len(log.entries)]
            parts = log.parts(entry)
            parts.key[:], parts.inputs[:] = change.key, self._by_head(mixed)
            parts.update[:], parts.decay[:] = (each.view(of.key_heads, -1) for each in (change.update, change.decay))
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
            change = StateChange(key, update.reshape(of.value_heads, -1), decay.reshape(-1))
            states = advanced(of, states, change)
        return states

    def _by_head(self, channels: Tensor) -> Tensor:
        """Channels float32 [channels] by the key heads that they are of."""
        keys = self._of.key_heads * self._of.key_dim
        kinds = channels.split([keys, keys, self._of.channels - 2 * keys], -1)
        return torch.cat([kind.view(self._of.key_heads, -1) for kind in kinds], -1)

    def _channels(self, by_head: Tensor) -> Tensor:
        """The inverse of `_by_head`, for each of several tokens."""
        of = self._of
        kinds = by_head.split([of.key_dim, of.key_dim, of.sharing * of.value_dim], -1)
        return torch.cat([kind.flatten(-2) for kind in kinds], -1)
