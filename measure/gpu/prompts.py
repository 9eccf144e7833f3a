"""Times prompts on random weights: by the widest passes and those of PASS_ROWS in turn; then steps after each."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch

from measure.gpu.checks import Check, command
from measure.gpu.kernels import Rows
from specchat.bench.published import PUBLISHED, Shapes
from specchat.bench.shapes import timed_in_turn
from specchat.bench.synthetic import on_device
from specchat.engine.kernels.gpu_shapes import PASS_ROWS

MODELS: Mapping[str, Sequence[int]] = {"qwen3-8b": (4096, 32768), "qwen3-30b-a3b": (4096,)}
"""Tokens of the prompts, by pair."""
REPEATS = 3
LENGTHS = 0, 7
"""Draft lengths of the steps."""


def prompts(
    name: str, shapes: Shapes, lengths: Sequence[int], device: torch.device, dtype: torch.dtype, wait: Callable[[], Any]
) -> Rows:
    """Tokens a second of prompts by rows of a pass, and milliseconds of steps after them; `wait` ends what runs."""
    runner = on_device(shapes, "nf4", max(lengths) + 256, device, dtype)
    target = runner.target
    found: Rows = []
    widest = target.model.block
    for tokens in lengths:
        text = torch.randint(shapes.target.vocab, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()
        taken: dict[int, list[float]] = {widest: [], PASS_ROWS: []}
        for repeat in range(1 + REPEATS):
            for rows, seconds in taken.items():
                target.model.block = rows  # type: ignore[misc]
                target.keep(0)
                wait()
                begun = perf_counter()
                target.begin(text)
                wait()
                if repeat:
                    seconds.append(perf_counter() - begun)
        for rows, seconds in taken.items():
            speeds = sorted(tokens / one for one in seconds)
            found.append({"pair": name, "prompt": tokens, "rows a pass": rows, "tokens/s": median(speeds),
                          "least": speeds[0], "most": speeds[-1]})  # fmt: skip
    for tokens in lengths:
        tried = [(runner.drafters["draft" if length else "plain"], length) for length in LENGTHS]
        timed = timed_in_turn(runner, tried, lambda _: None, lambda: True, tokens=tokens)
        for length, steps in zip(LENGTHS, timed, strict=True):
            verify = median(outcome.verify_ms for _, outcome in steps)
            found.append({"pair": name, "after": tokens, "rows": length + 1, "step ms": median(ms for ms, _ in steps),
                          "verify ms": verify})  # fmt: skip
    return found


def _on_gpu(name: str, _: Any) -> Rows:
    device = torch.device("cuda")
    return prompts(name, PUBLISHED[name], MODELS[name], device, torch.bfloat16, torch.cuda.synchronize)


CHECKS: Mapping[str, Check] = {name: partial(_on_gpu, name) for name in MODELS}


if __name__ == "__main__":
    with torch.no_grad():
        command(CHECKS)()
