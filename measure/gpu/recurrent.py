"""Times the kernels of a recurrent layer at Qwen3.5-27B's shapes: 16 key heads, 48 of values, 128 wide."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from measure.gpu.checks import Check, command
from measure.gpu.kernels import CYCLED, Rows, Timer, replayed, timed
from specchat.engine.kernels.delta import step
from specchat.engine.kernels.delta_outputs import finish
from specchat.engine.kernels.delta_rows import GateWeights, RowText, StateInputs, convolve
from specchat.engine.kernels.delta_state import TIP, DeltaState, LogEntries, LoggedRows, chain_paths, slices
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, STATE_LAG, STATE_SLOTS
from specchat.engine.recipe import LENGTH_EPS

ROWS = (1, 2, 4, 8, 16, PASS_ROWS)
SIZES = 16, 128, 48, 128
"""Key heads and their width, value heads and theirs."""
TAPS, SPLITS, TEXT = 4, 4, 60


class RowBuffers(NamedTuple):
    """Buffers of the kernels. Layers share them."""

    partials: Tensor
    gates: Tensor
    entries: LogEntries
    between: StateInputs
    out: Tensor
    at: RowText


Launch = Callable[[DeltaState, RowBuffers, int], None]


def recurrent(sizes: tuple[int, ...], device: torch.device, dtype: torch.dtype, timer: Timer, cycled: int) -> Rows:
    """Each kernel by number of rows; states also where they are STATE_LAG tokens behind, the most in plain decoding.

    A pass of PASS_ROWS rows makes the states anew from TEXT tokens, as many as one of a prompt folds.
    """
    key_heads, key_dim, value_heads, value_dim = sizes
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    width = -(-(channels + keys + values + value_heads) // 4) * 4
    weights = GateWeights(
        torch.randn(channels, 1, TAPS, device=device), None, *torch.randn(2, value_heads, device=device)
    )
    norm = torch.ones(value_dim, device=device), LENGTH_EPS
    text = torch.full((1,), TEXT, device=device, dtype=torch.int32)
    b = RowBuffers(
        torch.randn(SPLITS, PASS_ROWS, channels + values, device=device),
        torch.randn(SPLITS, PASS_ROWS, 2 * value_heads, device=device),
        LogEntries.of(torch.zeros(PASS_ROWS, width, device=device), *sizes),
        StateInputs(
            torch.zeros(PASS_ROWS, key_heads, key_dim, device=device),
            torch.zeros(PASS_ROWS, value_heads, value_dim, device=device),
            torch.zeros(PASS_ROWS, value_heads, device=device),
        ),
        torch.zeros(PASS_ROWS, values, device=device, dtype=dtype),
        RowText(text, text, chain_paths(PASS_ROWS, device)),
    )

    def convolution(one: DeltaState, b: RowBuffers, rows: int) -> None:
        convolve(b.partials, b.gates, weights, b.at, LoggedRows(one.log, b.entries), b.between, rows, LENGTH_EPS)

    def states(one: DeltaState, b: RowBuffers, rows: int) -> None:
        step(one, b.entries, b.between, b.at, rows, TAPS)

    def outputs(one: DeltaState, b: RowBuffers, rows: int) -> None:
        finish(b.partials, b.between.values, norm, LoggedRows(one.log, b.entries), b.at, b.out, rows)

    size = 4 * value_heads * key_dim * value_dim
    layers = [_layer(sizes, width, device) for _ in range(1 + cycled // size)]
    stages: Mapping[str, tuple[Launch, int, int]] = {
        "convolution": (convolution, 0, 0),
        "states": (states, 0, size),
        f"states, {STATE_LAG} tokens behind": (states, STATE_LAG, size),
        "outputs": (outputs, 0, 0),
    }
    found: Rows = []
    for name, (launch, behind, read) in stages.items():
        for rows in ROWS:
            for one in layers:
                one.positions[..., TIP] = TEXT - behind
            call = partial(_launched, launch, layers, b, rows)
            found.append({"kernel": name, "rows": rows} | timed(timer, call, len(layers), read))
    return found


def _launched(launch: Launch, layers: list[DeltaState], b: RowBuffers, rows: int, copy: int) -> None:
    launch(layers[copy], b, rows)


def _layer(sizes: tuple[int, ...], width: int, device: torch.device) -> DeltaState:
    key_heads, key_dim, value_heads, value_dim = sizes
    return DeltaState(
        torch.randn(2, value_heads, key_dim, value_dim, device=device),
        torch.zeros(value_heads, slices(key_dim, value_dim), 2, device=device, dtype=torch.int32),
        LogEntries.of(torch.zeros(STATE_SLOTS, width, device=device), key_heads, key_dim, value_heads, value_dim),
    )


def _on_gpu(_: Any) -> Rows:
    return recurrent(SIZES, torch.device("cuda"), torch.bfloat16, replayed, CYCLED)


CHECKS: Mapping[str, Check] = {"recurrent": _on_gpu}


if __name__ == "__main__":
    with torch.no_grad():
        command(CHECKS)()
