"""The kernels of recurrent layers as a step launches them, at Qwen3.5-27B's shapes: 16 key heads, 48 of values, 128."""

from torch import bfloat16, empty, int32

from specchat.engine.kernels import delta, delta_outputs, delta_rows, delta_state
from specchat.engine.kernels.delta_rows import GateWeights, RowText, StateInputs
from specchat.engine.kernels.delta_state import DeltaState, LogEntries, LoggedRows
from specchat.engine.kernels.gpu_shapes import STATE_SLOTS
from specchat.engine.kernels.verify_state import VerifyState
from tests.kernels.compiled import Case, launched

KEY_HEADS, VALUE_HEADS, TAPS, ROWS = 16, 48, 4, 16
POSITION = empty(1, dtype=int32)
PATHS = delta_state.chain_paths(ROWS, "cpu")
AT = RowText(POSITION, POSITION, PATHS, POSITION)
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
    made = empty(ROWS, KEY_HEADS, key_dim), empty(ROWS, VALUE_HEADS, value_dim), empty(ROWS, VALUE_HEADS)
    rest = _entries(ROWS, key_dim, value_dim), StateInputs(*made), AT, ROWS, TAPS
    return launched("states", delta._step, lambda: delta.step(state, *rest))


DIM = 128
CHANNELS, VALUES = (2 * KEY_HEADS + VALUE_HEADS) * DIM, VALUE_HEADS * DIM
MIXED = empty(4, ROWS, CHANNELS + VALUES)
ENTRIES = LoggedRows(_entries(STATE_SLOTS, DIM, DIM), _entries(ROWS, DIM, DIM))
WRITES = empty(ROWS, VALUE_HEADS)
INPUTS = StateInputs(empty(ROWS, KEY_HEADS, DIM), empty(ROWS, VALUE_HEADS, DIM), WRITES)
WEIGHTS = GateWeights(empty(CHANNELS, 1, TAPS), None, WRITES[0], WRITES[0])

CASES = [
    launched(
        "convolution",
        delta_rows._convolve,
        lambda: delta_rows.convolve(MIXED, empty(8, ROWS, 2 * VALUE_HEADS), WEIGHTS, AT, ENTRIES, INPUTS, ROWS, 1e-6),
    ),
    _states(DIM, DIM),
    launched(
        "norm of heads, and the log",
        delta_outputs._finish,
        lambda: delta_outputs.finish(
            MIXED, INPUTS.values, (empty(DIM), 1e-6), ENTRIES, AT, empty(ROWS, VALUES, dtype=bfloat16), ROWS
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

    mixed, logged, one = (
        empty(4, ROWS, values + channels + heads),
        LoggedRows(entries(STATE_SLOTS), entries(ROWS)),
        empty(heads),
    )
    inputs = StateInputs(empty(ROWS, 1, state), empty(ROWS, heads, dim), empty(ROWS, heads))
    weights = GateWeights(empty(channels, 1, TAPS), empty(channels), one, one)
    positions = empty(heads, delta_state.slices(state, dim), 2, dtype=int32)
    held = DeltaState(empty(2, heads, state, dim), positions, logged.log)
    return [
        launched(
            "convolution with a bias",
            delta_rows._convolve,
            lambda: delta_rows.convolve(mixed, mixed[..., -heads:], weights, AT, logged, inputs, ROWS, None),
        ),
        launched(
            "states of Mamba 2",
            delta._step,
            lambda: delta.step(held, logged.rows, inputs, AT, ROWS, TAPS, one),
        ),
        launched(
            "norm of a group, and the log",
            delta_outputs._finish,
            lambda: delta_outputs.finish(
                mixed, inputs.values, (empty(values), 1e-6), logged, AT, empty(ROWS, values, dtype=bfloat16), ROWS, 1
            ),
        ),
    ]


CASES += _mamba()
