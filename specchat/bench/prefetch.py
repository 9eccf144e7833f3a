"""Times passes with weights asked for ahead of their products beside the same without, in turn, on random weights.

Weights are asked for on any card, also on one that is not bound by its memory. Both ways compute the same bits.
"""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor

from specchat.bench.published import PUBLISHED
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import random
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.kernels.ahead import NONE, Memory, as_of, whole_memory
from specchat.engine.weights.config import ModelConfig

MODELS = ("qwen3-8b", "qwen3-30b-a3b")
LAYERS = 4
"""Layers of a check, which a card of 8 GB holds."""
ROWS = (1, 8)
CONTEXT = 600
WAYS = "asked ahead", "nothing ahead"
WARM_UP, RUNS = 10, 50

Rows = list[dict[str, Any]]
InTurn = Callable[[Mapping[str, Callable[[], object]]], dict[str, list[float]]]
"""Runs some functions in turn; returns microseconds of each by run."""


def passes(configs: Mapping[str, ModelConfig], device: torch.device, dtype: torch.dtype, in_turn: InTurn) -> Rows:
    """Verify passes in NF4, by model and number of rows: quartiles with, the median without, and its ratio to with."""
    found: Rows = []
    for name, config in configs.items():
        memories = whole_memory(device), NONE
        model = DeviceDecoder(config, random(config, "nf4", device, dtype), CONTEXT, device, dtype)
        tokens = torch.randint(config.vocab, (max(ROWS),), generator=torch.Generator().manual_seed(1))
        start = torch.tensor([CONTEXT // 2], dtype=torch.int32, device=device)
        for rows in ROWS:
            arguments = model, tokens.to(device, torch.int32), start, rows
            assert torch.equal(*(_passed(*arguments, one) for one in memories)), f"{name}: other bits"
            times = in_turn({way: partial(_passed, *arguments, one) for way, one in zip(WAYS, memories, strict=True)})
            low, median, high = quantiles(times["asked ahead"], n=4, method="inclusive")
            without = quantiles(times["nothing ahead"], n=4, method="inclusive")[1]
            row = {"model": name, "rows": rows, "us": median, "low": low, "high": high}
            found.append(row | {"nothing ahead, us": without, "ratio": median / without})
    return found


def _passed(model: DeviceDecoder, tokens: Tensor, start: Tensor, rows: int, memory: Memory) -> Tensor:
    """Logits of a pass; as captured it keeps its launches, whatever is asked for later."""
    with as_of(memory):
        model.forward(tokens, start, rows)
        return model.logits(0, rows)[:rows].clone()


def captured_in_turn(calls: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Replays of captured graphs, one of each a round."""
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    torch.cuda.synchronize()
    for name, call in calls.items():
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(WARM_UP + RUNS):
        for name, graph in graphs.items():
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            graph.replay()
            ended.record()
            ended.synchronize()
            if turn >= WARM_UP:
                found[name].append(1e3 * begun.elapsed_time(ended))
    return found


def prefetches(notes: Notes) -> None:
    """Note the times of passes through some layers of published shapes, with and without."""
    device, dtype = place.gpu(), place.dtype()
    for name in MODELS:
        for row in passes({name: PUBLISHED[name].cut(LAYERS).target}, device, dtype, captured_in_turn):
            notes.row(**row)
