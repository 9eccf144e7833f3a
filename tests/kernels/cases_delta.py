"""The kernels of recurrent layers as a step launches them, at Qwen3.5-27B's shapes: 16 key heads, 48 of values, 128."""

from torch import bfloat16, empty, int32

from specchat.engine.kernels import delta, delta_outputs, delta_rows, delta_state
from specchat.engine.kernels.delta_state import DeltaState, LogEntries
from specchat.engine.kernels.gpu_shapes import STATE_SLOTS
from specchat.engine.kernels.verify_state import VerifyState
from tests.kernels.compiled import Case, launched

KEY_HEADS, VALUE_HEADS, TAPS, ROWS = 16, 48, 4, 16
POSITION = empty(1, dtype=int32)
PATHS = delta_state.chain_paths(ROWS, "cpu")
STATE = VerifyState.create(1024, ROWS, "cpu")


def _width(key_dim: int, value_dim: int) -> int:
    """Values of a token's entry."""
    return 3 * KEY_HEADS * key_dim + 2 * VALUE_HEADS * value_dim + VALUE_HEADS


def _entries(tokens: int, key_dim: int, value_dim: int) -> LogEntries:
    whole = empty(tokens, _width(key_dim, value_dim))
    return LogEntries.of(whole, KEY_HEADS, key_dim, VALUE_HEADS, value_dim)


def _states(key_dim: int, value_dim: int) -> Case:
    state = DeltaState(
        empty(2, VALUE_HEADS, key_dim, value_dim),
        empty(VALUE_HEADS, delta_state.slices(key_dim, value_dim), 2, dtype=int32),
        _entries(STATE_SLOTS, key_dim, value_dim),
    )
    rows = _entries(ROWS, key_dim, value_dim), empty(ROWS, KEY_HEADS, key_dim), empty(ROWS, VALUE_HEADS, value_dim)
    rest = empty(ROWS, VALUE_HEADS), POSITION, POSITION, PATHS, ROWS, POSITION, TAPS
    return launched("states", delta._step, lambda: delta.step(state, *rows, *rest))


DIM = 128
CHANNELS, VALUES = (2 * KEY_HEADS + VALUE_HEADS) * DIM, VALUE_HEADS * DIM
MIXED, LOG, ENTRIES = empty(4, ROWS, CHANNELS + VALUES), _entries(STATE_SLOTS, DIM, DIM), _entries(ROWS, DIM, DIM)
QUERY, HEADS, WRITES = empty(ROWS, KEY_HEADS, DIM), empty(ROWS, VALUE_HEADS, DIM), empty(ROWS, VALUE_HEADS)

CASES = [
    launched(
        "convolution",
        delta_rows._convolve,
        lambda: delta_rows.convolve(
            *(MIXED, empty(8, ROWS, 2 * VALUE_HEADS), empty(CHANNELS, 1, TAPS), WRITES[0], WRITES[0], POSITION),
            *(POSITION, PATHS, LOG, ENTRIES, QUERY, HEADS, WRITES, ROWS, POSITION, 1e-6),
        ),
    ),
    _states(DIM, DIM),
    launched(
        "norm of heads, and the log",
        delta_outputs._finish,
        lambda: delta_outputs.finish(
            *(MIXED, HEADS, (empty(DIM), 1e-6), ENTRIES, LOG, POSITION),
            *(empty(ROWS, VALUES, dtype=bfloat16), ROWS, POSITION),
        ),
    ),
    launched(
        "entries of a path",
        delta_state._keep_entries,
        lambda: delta_state.keep_entries(empty(4, STATE_SLOTS, _width(DIM, DIM)), STATE, None),
    ),
]

SMALL_STATES = [_states(16, 8)]
"""States of so few numbers that a thread has one of each column."""


def _mamba() -> list[Case]:
    """At Granite 4 H Small's shapes: 128 heads of 64 values in one group, 128 values of a state's key."""
    heads, dim, state = 128, 64, 128
    values = heads * dim
    channels = values + 2 * state

    def entries(tokens: int) -> LogEntries:
        return LogEntries.of(empty(tokens, channels + state + values + heads), 1, state, heads, dim)

    mixed, made, log = empty(4, ROWS, values + channels + heads), entries(ROWS), entries(STATE_SLOTS)
    query, of_heads, one = empty(ROWS, 1, state), empty(ROWS, heads, dim), empty(heads)
    positions = empty(heads, delta_state.slices(state, dim), 2, dtype=int32)
    held, writes = DeltaState(empty(2, heads, state, dim), positions, log), empty(ROWS, heads)
    at = POSITION, POSITION, PATHS
    return [
        launched(
            "convolution with a bias",
            delta_rows._convolve,
            lambda: delta_rows.convolve(
                *(mixed, mixed[..., -heads:], empty(channels, 1, TAPS), one, one, *at, log, made, query, of_heads),
                *(writes, ROWS, POSITION, None, empty(channels)),
            ),
        ),
        launched(
            "states of Mamba 2",
            delta._step,
            lambda: delta.step(held, made, query, of_heads, writes, *at, ROWS, POSITION, TAPS, one),
        ),
        launched(
            "norm of a group, and the log",
            delta_outputs._finish,
            lambda: delta_outputs.finish(
                *(mixed, of_heads, (empty(values), 1e-6), made, log, POSITION),
                *(empty(ROWS, values, dtype=bfloat16), ROWS, POSITION, 1),
            ),
        ),
    ]


CASES += _mamba()
