"""The states of Gated DeltaNet (Yang et al. 2025) or Mamba 2 (Dao and Gu 2024), stepped row after row in registers.

A program has some columns of one head's state, which do not depend on the others. It brings them to the beginning of
the pass by the log, with the operations that a row changes them by, and takes each row from the end of its path: a row
of a tree, of a chain and alone have the same bits, for it is one program that runs them all.
"""

import triton
import triton.language as tl
from torch import Tensor

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


@triton.jit  # type: ignore[untyped-decorator]
def _replayed(state: tl.tensor, keys: tl.tensor, updates: tl.tensor, decays: tl.tensor, entry: tl.tensor) -> tl.tensor:
    """The state after what an entry says."""
    return _advanced(state, tl.load(keys + entry), tl.load(updates + entry), tl.load(decays + entry))


@triton.jit  # type: ignore[untyped-decorator]
def _brought(
    state: tl.tensor,
    keys: tl.tensor,
    updates: tl.tensor,
    decays: tl.tensor,
    first: tl.tensor,
    last: tl.tensor,
    stride: tl.tensor,
    SLOTS: tl.constexpr,
    UNROLLED: tl.constexpr,
) -> tl.tensor:
    """The state before position `last`, of that before `first`."""
    whole = last - tl.maximum(last - first, 0) % UNROLLED
    for position in range(first, whole, UNROLLED):
        for i in tl.static_range(UNROLLED):
            state = _replayed(state, keys, updates, decays, (position + i) % SLOTS * stride)
    for position in range(tl.maximum(whole, first), last):
        state = _replayed(state, keys, updates, decays, position % SLOTS * stride)
    return state


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _step(
    states: tl.tensor,
    positions: tl.tensor,
    log_keys: tl.tensor,
    log_updates: tl.tensor,
    log_decays: tl.tensor,
    keys: tl.tensor,
    updates: tl.tensor,
    decays: tl.tensor,
    query: tl.tensor,
    values: tl.tensor,
    writes: tl.tensor,
    through: tl.tensor,
    start: tl.tensor,
    length: tl.tensor,
    paths: tl.tensor,
    skip: tl.tensor,
    rows: tl.tensor,
    stride_entry: tl.tensor,
    KEY_HEADS: tl.constexpr,
    SHARING: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    TAPS: tl.constexpr,
    SLOTS: tl.constexpr,
    BACK: tl.constexpr,
    SLACK: tl.constexpr,
    LAG: tl.constexpr,
    WIDE: tl.constexpr,
    UNROLLED: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    head = tl.program_id(0)
    heads: tl.constexpr = KEY_HEADS * SHARING
    size: tl.constexpr = heads * KEY_DIM * VALUE_DIM
    own = positions + (head * tl.num_programs(1) + tl.program_id(1)) * 2
    d = tl.arange(0, KEY_DIM)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    place = states + head * KEY_DIM * VALUE_DIM + d[:, None] * VALUE_DIM + column[None, :]
    # Within an entry, or a row.
    of_key = head // SHARING * KEY_DIM + d
    of_value = head * VALUE_DIM + column
    log_keys, log_updates, log_decays = log_keys + of_key, log_updates + of_value, log_decays + head
    keys, updates, decays = keys + of_key, updates + of_value, decays + head
    query, values, writes = query + of_key, values + of_value, writes + head
    first = tl.load(start)
    text = tl.load(length)

    begun = text > 0
    base = tl.where(begun, tl.load(own), 0)
    held = (text - base <= BACK + SLACK) & (first + rows - base <= SLOTS - TAPS + 1)
    fold = tl.where(held, base, tl.maximum(text - BACK, base))
    if (fold > base) | (text == 0):
        older = tl.load(place, mask=(d >= 0)[:, None] & begun, other=0.0)
        tl.store(place, _brought(older, log_keys, log_updates, log_decays, base, fold, stride_entry, SLOTS, UNROLLED))
        tl.debug_barrier()

    tip = tl.where(begun, tl.load(own + 1), -1)
    is_tip = (tip >= base) & (tip <= text)
    since = tl.where(is_tip, tip, fold)
    origin = tl.load(place + tl.where(is_tip, size, 0))
    origin = _brought(origin, log_keys, log_updates, log_decays, since, text, stride_entry, SLOTS, UNROLLED)
    # The text mostly goes on after a wide pass, and else may go on from many a place near its beginning.
    if (rows <= WIDE) & ((is_tip == 0) | (text - tip > LAG)):
        tl.store(place + size, origin)
        tip = text

    state = origin
    key, decay = tl.load(keys), tl.load(decays)
    value, write = tl.load(values), tl.load(writes)
    for row in range(rows):
        path = tl.load(paths + row)
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
                        entry = position % SLOTS * stride_entry
                        state = _replayed(state, log_keys, log_updates, log_decays, entry)
                    else:
                        state = _replayed(state, keys, updates, decays, (position - first) * stride_entry)
        asked = tl.load(query + row * KEY_HEADS * KEY_DIM)
        # The next row's, while this one is computed.
        after = tl.minimum(row + 1, rows - 1)
        next_key, next_decay = tl.load(keys + after * stride_entry), tl.load(decays + after * stride_entry)
        next_value = tl.load(values + after * heads * VALUE_DIM)
        next_write = tl.load(writes + after * heads)
        if through is None:
            found = tl.sum(state * decay * key[:, None], 0)
            update = (value - found) * write
        else:
            update = value * write
        tl.store(updates + row * stride_entry, update)
        state = _advanced(state, key, update, decay)
        made = tl.sum(state * asked[:, None], 0)
        if through is not None:
            made = tl.fma(value, tl.zeros_like(value) + tl.load(through + head), made)
        tl.store(values + row * heads * VALUE_DIM, made)
        key, decay, value, write = next_key, next_decay, next_value, next_write

    if rows > WIDE:
        tl.store(place + size, state)
        tip = first + rows
    tl.store(own, fold)
    tl.store(own + 1, tip)


def fused(key_dim: int, columns: int) -> bool:
    """False where a thread has but one number of a column: it would fuse its product with the sum of another thread's.

    Threads would then disagree on the sum in its last bit, of which the log has one.
    """
    return key_dim * columns > THREADS * VECTOR


def step(
    state: DeltaState,
    entries: LogEntries,
    query: Tensor,
    values: Tensor,
    writes: Tensor,
    start: Tensor,
    length: Tensor,
    paths: Tensor,
    rows: int,
    skip: Tensor | None,
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
        query, values, writes: from `convolve`; float32 [R, key_heads, key_dim], [R, value_heads, value_dim] and
            [R, value_heads].
        start, length: int32 [1].
        paths: int64 [R], 64 at most: row r follows the entries length + j where bit j is set, its own included.
        skip: int32 [1]; non-zero skips the kernel.
        taps: tokens that the convolution reads: so many less one before the log's beginning stay.
        through: float32 [value_heads]; with it updates are values times `writes`, and y = S^T q + through * value.
    """
    (key_heads, key_dim), (value_heads, value_dim) = query.shape[1:], values.shape[1:]
    columns, log = state_columns(key_dim, value_dim), state.log
    _step[(value_heads, slices(key_dim, value_dim))](
        state.states,
        state.positions,
        log.keys,
        log.updates,
        log.decays,
        entries.keys,
        entries.updates,
        entries.decays,
        query,
        values,
        writes,
        through,
        start,
        length,
        paths,
        skip,
        rows,
        entries.stride,
        KEY_HEADS=key_heads,
        SHARING=value_heads // key_heads,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        COLUMNS=columns,
        TAPS=taps,
        SLOTS=STATE_SLOTS,
        BACK=STATE_BACK,
        SLACK=STATE_SLACK,
        LAG=STATE_LAG,
        WIDE=VERIFY_ROWS,
        UNROLLED=UNROLLED,
        num_warps=1,
        enable_fp_fusion=fused(key_dim, columns),
    )
