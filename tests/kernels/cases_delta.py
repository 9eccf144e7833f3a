"""The kernels of recurrent layers as a step launches them, at Qwen3.5-27B's shapes: 16 key heads, 48 of values, 128."""

from dataclasses import replace

import triton

from specchat.engine.kernels import delta, delta_outputs, delta_rows, delta_state
from specchat.engine.kernels.gpu_shapes import (
    STATE_BACK,
    STATE_LAG,
    STATE_SLACK,
    STATE_SLOTS,
    VERIFY_ROWS,
    state_columns,
)
from tests.kernels.compiled import Case

KEY_HEADS, VALUE_HEADS, DIM, TAPS, SPLITS = 16, 48, 128, 4, 4
WIDTH = 2 * KEY_HEADS * DIM + VALUE_HEADS * DIM + KEY_HEADS * DIM + VALUE_HEADS * DIM + VALUE_HEADS
SHARE = triton.next_power_of_2(triton.cdiv(WIDTH, VALUE_HEADS))

CASES = [
    Case(
        name="convolution",
        kernel=delta_rows._convolve,
        signature={
            "partials": "*fp32",
            "gates": "*fp32",
            "weights": "*fp32",
            "rates": "*fp32",
            "shifts": "*fp32",
            "start": "*i32",
            "length": "*i32",
            "paths": "*i64",
            "logged": "*fp32",
            "inputs": "*fp32",
            "keys": "*fp32",
            "decays": "*fp32",
            "query": "*fp32",
            "values": "*fp32",
            "writes": "*fp32",
            "skip": "*i32",
            "stride_split": "i32",
            "stride_gates": "i32",
            "stride_entry": "i32",
            "outputs": "i32",
            "eps": "fp32",
            "scale": "fp32",
            "KEY_HEADS": "constexpr",
            "VALUE_HEADS": "constexpr",
            "KEY_DIM": "constexpr",
            "VALUE_DIM": "constexpr",
            "PADDED": "constexpr",
            "TAPS": "constexpr",
            "SPLITS": "constexpr",
            "GATE_SPLITS": "constexpr",
            "SLOTS": "constexpr",
        },
        constants={
            "KEY_HEADS": KEY_HEADS,
            "VALUE_HEADS": VALUE_HEADS,
            "KEY_DIM": DIM,
            "VALUE_DIM": DIM,
            "PADDED": DIM,
            "TAPS": TAPS,
            "SPLITS": SPLITS,
            "GATE_SPLITS": 8,
            "SLOTS": STATE_SLOTS,
        },
        aligned=(
            *("partials", "gates", "weights", "rates", "shifts", "start", "length", "paths", "logged", "inputs"),
            *("keys", "decays", "query", "values", "writes", "skip"),
            *("stride_split", "stride_gates", "stride_entry", "outputs"),
        ),
        num_warps=1,
    ),
    Case(
        name="states",
        kernel=delta._step,
        signature={
            "states": "*fp32",
            "positions": "*i32",
            "log_keys": "*fp32",
            "log_updates": "*fp32",
            "log_decays": "*fp32",
            "keys": "*fp32",
            "updates": "*fp32",
            "decays": "*fp32",
            "query": "*fp32",
            "values": "*fp32",
            "writes": "*fp32",
            "start": "*i32",
            "length": "*i32",
            "paths": "*i64",
            "skip": "*i32",
            "rows": "i32",
            "stride_entry": "i32",
            "KEY_HEADS": "constexpr",
            "SHARING": "constexpr",
            "KEY_DIM": "constexpr",
            "VALUE_DIM": "constexpr",
            "COLUMNS": "constexpr",
            "TAPS": "constexpr",
            "SLOTS": "constexpr",
            "BACK": "constexpr",
            "SLACK": "constexpr",
            "LAG": "constexpr",
            "WIDE": "constexpr",
            "UNROLLED": "constexpr",
        },
        constants={
            "KEY_HEADS": KEY_HEADS,
            "SHARING": VALUE_HEADS // KEY_HEADS,
            "KEY_DIM": DIM,
            "VALUE_DIM": DIM,
            "COLUMNS": state_columns(DIM, DIM),
            "TAPS": TAPS,
            "SLOTS": STATE_SLOTS,
            "BACK": STATE_BACK,
            "SLACK": STATE_SLACK,
            "LAG": STATE_LAG,
            "WIDE": VERIFY_ROWS,
            "UNROLLED": delta.UNROLLED,
        },
        aligned=(
            *("states", "positions", "log_keys", "log_updates", "log_decays", "keys", "updates", "decays", "query"),
            *("values", "writes", "start", "length", "paths", "skip", "stride_entry"),
        ),
        num_warps=1,
    ),
    Case(
        name="norm of heads, and the log",
        kernel=delta_outputs._finish,
        signature={
            "partials": "*fp32",
            "values": "*fp32",
            "weight": "*fp32",
            "entries": "*fp32",
            "log": "*fp32",
            "start": "*i32",
            "out": "*bf16",
            "skip": "*i32",
            "stride_split": "i32",
            "stride_entry": "i32",
            "outputs": "i32",
            "eps": "fp32",
            "VALUE_DIM": "constexpr",
            "SPLITS": "constexpr",
            "SLOTS": "constexpr",
            "SHARE": "constexpr",
        },
        constants={"VALUE_DIM": DIM, "SPLITS": SPLITS, "SLOTS": STATE_SLOTS, "SHARE": SHARE},
        aligned=(
            *("partials", "values", "weight", "entries", "log", "start", "out", "skip"),
            *("stride_split", "stride_entry", "outputs"),
        ),
        num_warps=delta_outputs.warps(WIDTH, VALUE_HEADS),
    ),
    Case(
        name="entries of a path",
        kernel=delta_state._keep_entries,
        signature={
            "entries": "*fp32",
            "length": "*i32",
            "result": "*i32",
            "kept": "*i32",
            "places": "constexpr",
            "stride_layer": "i32",
            "width": "i32",
            "SLOTS": "constexpr",
            "COLUMNS": "constexpr",
        },
        constants={"places": None, "SLOTS": STATE_SLOTS, "COLUMNS": delta_state.COLUMNS},
        aligned=("entries", "length", "result", "stride_layer", "width"),
        num_warps=4,
    ),
]

SMALL_STATES = [
    replace(
        case,
        constants={**case.constants, "KEY_DIM": 16, "VALUE_DIM": 8, "COLUMNS": 8},
        options={"enable_fp_fusion": delta.fused(16, 8)},
    )
    for case in CASES
    if case.kernel is delta._step
]
"""States of so few numbers that a thread has one of each column."""
