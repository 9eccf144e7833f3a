"""Times the kernels of a mixture of experts, at Qwen3-30B-A3B's shapes, by rows that choose at random.

A row's scores are independent of other rows': neighbouring tokens of a text share more experts, so what more rows cost
here is the most that they cost.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from measure.gpu.checks import Check, command
from measure.gpu.kernels import CYCLED, FORMATS, Rows, Timer, held, quantised, replayed, timed
from specchat.bench.published import QWEN3_30B_A3B
from specchat.engine.formats.layout import Weight
from specchat.engine.hardware.page_locked import values_in_main
from specchat.engine.kernels import expert_products
from specchat.engine.kernels.activation import gate_mul
from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.norm import OtherNorm, ResidualUpdate
from specchat.engine.kernels.pairs import Pairs, allocated
from specchat.engine.kernels.route import Rule, route
from specchat.engine.recipe import Experts
from specchat.engine.weights.config import ModelConfig

ROWS = (1, 2, 4, 8, 16, PASS_ROWS)
IN_MAIN = "nf4 nested, in main memory"
SOFTMAX = Rule(renormalised=True, sigmoid=False, groups=(1, 1), factor=1.0)


class Layer(NamedTuple):
    """The weights of all experts, and the choice of each row."""

    gate_up: Weight
    down: Weight
    scores: Tensor
    pairs: Pairs


class Buffers(NamedTuple):
    """Values between the kernels; `sums` is empty if the product applies the activation itself."""

    x: Tensor
    sums: Tensor
    act: Tensor
    made: Tensor
    residual: Tensor
    norm: Tensor


def experts(c: ModelConfig, device: torch.device, dtype: torch.dtype, timer: Timer, cycled: int) -> Rows:
    """Each kernel and all together, in 16 bits and every format, by number of rows; also read from main memory."""
    feed = next(layer.feed for layer in c.recipe.layers if isinstance(layer.feed, Experts))
    found: Rows = []
    for label in ("16 bits", *FORMATS, IN_MAIN):
        layers = [_made(feed, c.hidden, label, device, dtype)]
        if label == IN_MAIN:
            layers += [_again(layers[0], seed, layers[0]) for seed in range(1, 8)]
        else:
            size = held(layers[0].gate_up) + held(layers[0].down)
            layers += [_again(layers[0], seed, deepcopy(layers[0])) for seed in range(1, 1 + cycled // size)]
        for rows in ROWS:
            buffers = _buffers(feed, c.hidden, layers[0], dtype)
            for one in layers:
                route(one.scores, SOFTMAX, one.pairs, rows, None)
            hit = sum(len(set(one.pairs.experts[: int(one.pairs.used)].tolist())) for one in layers) / len(layers)
            for stage, (launch, of) in _stages(feed, layers[0]).items():
                read = int(hit / feed.count * sum(held(getattr(layers[0], name)) for name in of))
                call = partial(_launched, launch, layers, buffers, rows)
                row = {"weights": label, "kernel": stage, "rows": rows, "experts": round(hit, 1)}
                found.append(row | timed(timer, call, len(layers), read))
    return found


Launch = Callable[[Layer, Buffers, int], None]


def _stages(feed: Experts, layer: Layer) -> Mapping[str, tuple[Launch, tuple[str, ...]]]:
    """Launches by name, and the weights that they read."""
    within = expert_products.activates(layer.gate_up, feed.count, feed.top, layer.scores.device)

    def choose(one: Layer, _: Buffers, rows: int) -> None:
        route(one.scores, SOFTMAX, one.pairs, rows, None)

    def gates(one: Layer, b: Buffers, rows: int) -> None:
        if within:
            expert_products.multiply(b.x, one.gate_up, None, b.act, one.pairs, rows, True, activation="silu")
        else:
            expert_products.multiply(b.x, one.gate_up, None, b.sums, one.pairs, rows, True)
            gate_mul(b.sums, b.act, rows * feed.top, None)

    def down(one: Layer, b: Buffers, rows: int) -> None:
        expert_products.multiply(b.act, one.down, None, b.made, one.pairs, rows, False)

    def add(one: Layer, b: Buffers, rows: int) -> None:
        norm = OtherNorm(b.norm, 1e-6, b.x)
        add_mixture(ResidualUpdate(b.residual), MixtureOutput(b.made, one.pairs), norm, rows)

    def together(one: Layer, b: Buffers, rows: int) -> None:
        for launch in (choose, gates, down, add):
            launch(one, b, rows)

    return {
        "choice": (choose, ()),
        "gates": (gates, ("gate_up",)),
        "down": (down, ("down",)),
        "sum": (add, ()),
        "all": (together, ("gate_up", "down")),
    }


def _launched(launch: Launch, layers: list[Layer], buffers: Buffers, rows: int, copy: int) -> None:
    launch(layers[copy], buffers, rows)


def _made(feed: Experts, hidden: int, label: str, device: torch.device, dtype: torch.dtype) -> Layer:
    def weight(outputs: int, inputs: int) -> Weight:
        dense = (torch.randn(feed.count * outputs, inputs, device=device) / inputs**0.5).to(dtype)
        if label == IN_MAIN:
            return values_in_main(quantised(dense, "nf4", True), device)
        return dense if label not in FORMATS else quantised(dense, *FORMATS[label])

    gate_up, down = weight(2 * feed.each.width, hidden), weight(hidden, feed.each.width)
    return Layer(gate_up, down, _scores(feed.count, 0, device), allocated(feed.count, feed.top, device))


def _again(layer: Layer, seed: int, weights: Layer) -> Layer:
    """The weights of a layer, with another choice."""
    pairs = allocated(layer.pairs.count, layer.pairs.top, layer.scores.device)
    return Layer(weights.gate_up, weights.down, _scores(layer.pairs.count, seed, layer.scores.device), pairs)


def _scores(count: int, seed: int, device: torch.device) -> Tensor:
    return torch.randn(1, PASS_ROWS, count, generator=torch.Generator().manual_seed(seed)).to(device)


def _buffers(feed: Experts, hidden: int, layer: Layer, dtype: torch.dtype) -> Buffers:
    many, device = PASS_ROWS * feed.top, layer.scores.device
    of = feed.count, feed.top, device
    gates, parts = (expert_products.splits(one, *of) for one in (layer.gate_up, layer.down))
    within = expert_products.activates(layer.gate_up, *of)
    sums = torch.empty(0 if within else gates, many, 2 * feed.each.width, device=device)
    act = torch.empty(many, feed.each.width, device=device, dtype=dtype)
    made, residual = torch.empty(parts, many, hidden, device=device), torch.zeros(PASS_ROWS, hidden, device=device)
    x, norm = torch.randn(PASS_ROWS, hidden, device=device).to(dtype), torch.ones(hidden, device=device)
    return Buffers(x, sums, act, made, residual, norm)


def _on_gpu(_: Any) -> Rows:
    return experts(QWEN3_30B_A3B, torch.device("cuda"), torch.bfloat16, replayed, CYCLED)


CHECKS: Mapping[str, Check] = {"experts": _on_gpu}


if __name__ == "__main__":
    with torch.no_grad():
        command(CHECKS)()
