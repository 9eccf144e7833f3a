"""Recurrent states of a layer on the device, with a log of what each token changed (`model.state_log`)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import state_columns
from specchat.engine.kernels.verify_state import AcceptedNodes, VerifyState

BASE, TIP = range(2)
"""Indices of states, and of their positions: before the first entry of the log, and in its midst."""
NOWHERE = -1
"""Position of states that are not valid."""
COLUMNS = 1024
"""Values of an entry that one program of `keep_entries` moves."""


@dataclass(frozen=True)
class LogEntries:
    """Changes of states by tokens: views of one tensor, float32 [tokens, width].

    Attributes:
        inputs: those of the convolution, [tokens, channels].
        keys: [tokens, key_heads, key_dim].
        updates: [tokens, value_heads, value_dim].
        decays: [tokens, value_heads].
    """

    whole: Tensor
    inputs: Tensor
    keys: Tensor
    updates: Tensor
    decays: Tensor

    @classmethod
    def of(cls, whole: Tensor, key_heads: int, key_dim: int, value_heads: int, value_dim: int) -> "LogEntries":
        """The parts of entries float32 [tokens, width]."""
        keys, values = key_heads * key_dim, value_heads * value_dim
        sizes = (2 * keys + values, keys, values, value_heads)
        inputs, of_keys, updates, decays = whole[:, : sum(sizes)].split(sizes, 1)
        return cls(
            whole,
            inputs,
            of_keys.unflatten(1, (key_heads, key_dim)),
            updates.unflatten(1, (value_heads, value_dim)),
            decays,
        )

    @property
    def stride(self) -> int:
        """Values from a token's entry to the next."""
        return self.whole.stride(0)


class LoggedRows(NamedTuple):
    """The log of a layer, of the tokens before a pass, and the entries of its rows, [R]."""

    log: LogEntries
    rows: LogEntries


@dataclass(frozen=True)
class DeltaState:
    """The states of a layer.

    Attributes:
        states: float32 [2, value_heads, key_dim, value_dim], see BASE.
        positions: int32 [value_heads, slices, 2], of the states by the programs that step them.
        log: entries of STATE_SLOTS tokens; that of position p is at p % STATE_SLOTS.
    """

    states: Tensor
    positions: Tensor
    log: LogEntries


def slices(key_dim: int, value_dim: int) -> int:
    """Programs that step a state [key_dim, value_dim]."""
    return value_dim // state_columns(key_dim, value_dim)


@triton.jit  # type: ignore[untyped-decorator]
def _keep_entries(
    entries: tl.tensor,
    nodes: AcceptedNodes,
    places: tl.tensor,
    stride_layer: tl.tensor,
    width: tl.tensor,
    SLOTS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    accepted = tl.load(nodes.result)
    # `commit` has already counted the emitted tokens.
    start = tl.load(nodes.length) - tl.load(nodes.result + 2)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    own = entries + tl.program_id(0).to(tl.int64) * stride_layer + column
    for depth in range(1, accepted + 1):
        place = tl.load(nodes.kept + depth)
        if places is not None:
            place = tl.load(places + place)
        # Never below `depth`, as in `keep`.
        if place > depth:
            source, target = ((start + place) % SLOTS) * width, ((start + depth) % SLOTS) * width
            tl.store(own + target, tl.load(own + source, mask=column < width), mask=column < width)


def keep_entries(entries: Tensor, state: VerifyState, places: Tensor | None) -> None:
    """After `commit`, move the entries of the accepted nodes together, as `kernels.keep` moves KV entries.

    Args:
        entries: float32 [layers, STATE_SLOTS, width]; before, node i is the i-th after node 0.
        places: as in `kernels.keep`.
    """
    layers, slots, width = entries.shape
    _keep_entries[(layers, triton.cdiv(width, COLUMNS))](
        entries,
        state.accepted,
        places,
        entries.stride(0),
        width,
        SLOTS=slots,
        COLUMNS=COLUMNS,
        num_warps=4,
        enable_fp_fusion=True,
    )


def chain_paths(rows: int, device: torch.device | str) -> Tensor:
    """Paths of a chain: int64 [rows], at most 64, with bits 0, ..., r set in that of row r."""
    return torch.tensor([(1 << (row + 1)) - 1 - (row == 63) * (1 << 64) for row in range(rows)], device=device)
