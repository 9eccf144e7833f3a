"""The states of Gated DeltaNet (Yang et al. 2025) or Mamba 2 (Dao and Gu 2024), stepped row after row in registers.

A program has some columns of one head's state, which do not depend on the others. It brings them to the beginning of
the pass by the log, with the operations that a row changes them by, and takes each row from the end of its path: a row
of a tree, of a chain and alone have the same bits, for it is one program that runs them all.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.delta_rows import RowText, StateInputs
from specchat.engine.kernels.delta_state import DeltaState, LogEntries, slices
from specchat.engine.kernels.gpu_shapes import (
    STATE_BACK,
    STATE_LAG,
    STATE_SLACK,
    STATE_SLOTS,
    VERIFY_ROWS,
    state_columns,
)

UNROLLED = 4
"""Entries of the log whose loads are under way at a time."""
THREADS, VECTOR = 32, 4
"""Threads of a program, and neighbouring columns that one thread has."""


@triton.jit  # type: ignore[untyped-decorator]
def _advanced(state: tl.tensor, key: tl.tensor, update: tl.tensor, decay: tl.tensor) -> tl.tensor:
    """decay * state + key update^T, rounded alike wherever it stands."""
    return tl.fma(key[:, None], update[None, :], state * decay)


class Changes(NamedTuple):
    """Changes of states by tokens: entries of a log, or of the rows of a pass."""

    keys: Tensor
    updates: Tensor
    decays: Tensor


class RowInputs(NamedTuple):
    """Queries, values, which the outputs replace, and gates of the rows of a pass; `through` as in `step`."""

    query: Tensor
    of_value: Tensor
    writes: Tensor
    through: Tensor | None


class HeldStates(NamedTuple):
    """States of a layer, their positions, and the log."""

    states: Tensor
    positions: Tensor
    log: Changes


class StateShape(NamedTuple):
    """Constants of a program: heads, value heads that share a key head, their columns, those of one program, taps.

    The others are those of a log in `gpu_shapes`, and `unrolled` entries of it.
    """

    key_heads: int
    sharing: int
    key_dim: int
    value_dim: int
    columns: int
    taps: int
    slots: int = STATE_SLOTS
    back: int = STATE_BACK
    slack: int = STATE_SLACK
    lag: int = STATE_LAG
    wide: int = VERIFY_ROWS
    unrolled: int = UNROLLED


@triton.jit  # type: ignore[untyped-decorator]
def _replayed(state: tl.tensor, changes: Changes, entry: tl.tensor) -> tl.tensor:
    """The state after what an entry says."""
    key, update = tl.load(changes.keys + entry), tl.load(changes.updates + entry)
    return _advanced(state, key, update, tl.load(changes.decays + entry))


@triton.jit  # type: ignore[untyped-decorator]
def _brought(
    state: tl.tensor, log: Changes, first: tl.tensor, last: tl.tensor, stride: tl.tensor, shape: tl.constexpr
) -> tl.tensor:
    """The state before position `last`, of that before `first`."""
    UNROLLED: tl.constexpr = shape.unrolled
    whole = last - tl.maximum(last - first, 0) % UNROLLED
    for position in range(first, whole, UNROLLED):
        for i in tl.static_range(UNROLLED):
            state = _replayed(state, log, (position + i) % shape.slots * stride)
    for position in range(tl.maximum(whole, first), last):
        state = _replayed(state, log, position % shape.slots * stride)
    return state


@triton.jit  # type: ignore[untyped-decorator]
def _changes(whole: Changes, of_key: tl.tensor, of_value: tl.tensor, head: tl.tensor) -> Changes:
    """Return pointers to the columns of a program within an entry."""
    return Changes(whole.keys + of_key, whole.updates + of_value, whole.decays + head)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _step(
    held: HeldStates,
    entries: Changes,
    inputs: RowInputs,
    at: RowText,
    rows: tl.tensor,
    stride_entry: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if at.skip is not None:  # noqa: SIM102
        if tl.load(at.skip) != 0:
            return
    head = tl.program_id(0)
    KEY_DIM: tl.constexpr = shape.key_dim
    VALUE_DIM: tl.constexpr = shape.value_dim
    size: tl.constexpr = shape.key_heads * shape.sharing * KEY_DIM * VALUE_DIM
    own = held.positions + (head * tl.num_programs(1) + tl.program_id(1)) * 2
    d = tl.arange(0, KEY_DIM)
    column = tl.program_id(1) * shape.columns + tl.arange(0, shape.columns)
    state_at = held.states + head * KEY_DIM * VALUE_DIM + d[:, None] * VALUE_DIM + column[None, :]
    # Within an entry, or a row.
    of_key = head // shape.sharing * KEY_DIM + d
    of_value = head * VALUE_DIM + column
    log = _changes(held.log, of_key, of_value, head)
    entries = _changes(entries, of_key, of_value, head)
    through = None
    if inputs.through is not None:
        through = inputs.through + head
    inputs = RowInputs(inputs.query + of_key, inputs.of_value + of_value, inputs.writes + head, through)
    first = tl.load(at.start)
    text = tl.load(at.length)

    begun = text > 0
    base = tl.where(begun, tl.load(own), 0)
    fits = (text - base <= shape.back + shape.slack) & (first + rows - base <= shape.slots - shape.taps + 1)
    fold = tl.where(fits, base, tl.maximum(text - shape.back, base))
    if (fold > base) | (text == 0):
        older = tl.load(state_at, mask=(d >= 0)[:, None] & begun, other=0.0)
        tl.store(state_at, _brought(older, log, base, fold, stride_entry, shape))
        tl.debug_barrier()

    tip = tl.where(begun, tl.load(own + 1), -1)
    is_tip = (tip >= base) & (tip <= text)
    since = tl.where(is_tip, tip, fold)
    origin = tl.load(state_at + tl.where(is_tip, size, 0))
    origin = _brought(origin, log, since, text, stride_entry, shape)
    # The text mostly goes on after a wide pass, and else may go on from many a place near its beginning.
    if (rows <= shape.wide) & ((is_tip == 0) | (text - tip > shape.lag)):
        tl.store(state_at + size, origin)
        tip = text
    state = _stepped(origin, log, entries, inputs, at, rows, stride_entry, shape)
    if rows > shape.wide:
        tl.store(state_at + size, state)
        tip = first + rows
    tl.store(own, fold)
    tl.store(own + 1, tip)


@triton.jit  # type: ignore[untyped-decorator]
def _stepped(
    origin: tl.tensor,
    log: Changes,
    entries: Changes,
    inputs: RowInputs,
    at: RowText,
    rows: tl.tensor,
    stride: tl.tensor,
    shape: tl.constexpr,
) -> tl.tensor:
    """Step the rows from `origin`, the state before the pass; write updates and outputs, and return the last state."""
    of_keys: tl.constexpr = shape.key_heads * shape.key_dim
    heads: tl.constexpr = shape.key_heads * shape.sharing
    of_values: tl.constexpr = heads * shape.value_dim
    first, text = tl.load(at.start), tl.load(at.length)
    state = origin
    key, decay = tl.load(entries.keys), tl.load(entries.decays)
    value, write = tl.load(inputs.of_value), tl.load(inputs.writes)
    for row in range(rows):
        path = tl.load(at.paths + row)
        node = first - text + row
        # The row before is either its parent or on another path.
        follows = (row > 0) & (((path >> tl.maximum(node - 1, 0)) & 1) != 0)
        if follows == 0:
            # What other threads wrote of the rows before is read.
            tl.debug_barrier()
            state = origin
            for above in range(node):
                if ((path >> above) & 1) != 0:
                    position = text + above
                    if position < first:
                        state = _replayed(state, log, position % shape.slots * stride)
                    else:
                        state = _replayed(state, entries, (position - first) * stride)
        asked = tl.load(inputs.query + row * of_keys)
        # The next row's, while this one is computed.
        after = tl.minimum(row + 1, rows - 1)
        next_key, next_decay = tl.load(entries.keys + after * stride), tl.load(entries.decays + after * stride)
        next_value = tl.load(inputs.of_value + after * of_values)
        next_write = tl.load(inputs.writes + after * heads)
        if inputs.through is None:
            found = tl.sum(state * decay * key[:, None], 0)
            update = (value - found) * write
        else:
            update = value * write
        tl.store(entries.updates + row * stride, update)
        state = _advanced(state, key, update, decay)
        made = tl.sum(state * asked[:, None], 0)
        if inputs.through is not None:
            made = tl.fma(value, tl.zeros_like(value) + tl.load(inputs.through), made)
        tl.store(inputs.of_value + row * of_values, made)
        key, decay, value, write = next_key, next_decay, next_value, next_write
    return state


def fused(key_dim: int, columns: int) -> bool:
    """False where a thread has but one number of a column: it would fuse its product with the sum of another thread's.

    Threads would then disagree on the sum in its last bit, of which the log has one.
    """
    return key_dim * columns > THREADS * VECTOR


def step(
    state: DeltaState,
    entries: LogEntries,
    inputs: StateInputs,
    at: RowText,
    rows: int,
    taps: int,
    through: Tensor | None = None,
) -> None:
    """Run the states of a layer over the rows of a pass: y = S^T q replaces the values.

    States are those after `length` tokens and the row's path. Those that the log begins with move on once it is
    longer than STATE_BACK and STATE_SLACK; those in its midst once they are STATE_LAG behind, or where they are not of
    this text. A pass of more than VERIFY_ROWS rows is a chain that the text mostly goes on after: they are then of its
    end. With no rows states are brought to `length` alone.

    Args:
        state: its states and their positions are changed; entries before `length` are read.
        entries: of the rows, from `convolve`; updates are written.
        inputs: from `convolve`.
        taps: tokens that the convolution reads: so many less one before the log's beginning stay.
        through: float32 [value_heads]; with it updates are values times `writes`, and y = S^T q + through * value.
    """
    (key_heads, key_dim), (value_heads, value_dim) = inputs.query.shape[1:], inputs.values.shape[1:]
    columns, log = state_columns(key_dim, value_dim), state.log
    log_changes, of_rows = (Changes(one.keys, one.updates, one.decays) for one in (log, entries))
    _step[(value_heads, slices(key_dim, value_dim))](
        HeldStates(state.states, state.positions, log_changes),
        of_rows,
        RowInputs(*inputs, through),
        at,
        rows,
        entries.stride,
        StateShape(key_heads, value_heads // key_heads, key_dim, value_dim, columns, taps),
        num_warps=1,
        enable_fp_fusion=fused(key_dim, columns),
    )
