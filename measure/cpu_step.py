"""Splits the time of a step on the processor, beside its lower bound: the figures of docs/measurements.md."""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import numpy as np
import torch

from specchat.config.paths import demo_model
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.model.passes import Skip
from specchat.engine.weights.checkpoint import Checkpoint

ROWS = (1, 2, 4, 8, 16)


def timed(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and interquartile range, in microseconds."""
    times = []
    for _ in range(repeats):
        started = perf_counter()
        run()
        times.append(1e6 * (perf_counter() - started))
    low, _, high = quantiles(times, n=4)
    return median(times), high - low


def read_rate() -> float:
    """Bytes per second that one core reads from memory."""
    numbers = np.ones(64 << 20, np.float32)
    return numbers.nbytes / (timed(numbers.max, 9)[0] * 1e-6)


def sum_rate() -> float:
    """Multiply-adds per second of one core, on matrices in its L1 cache."""
    a, b = torch.ones(64, 96), torch.ones(96, 64)
    return 64 * 96 * 64 / (timed(lambda: torch.mm(a, b), 2000)[0] * 1e-6)


def parts(decoder: CpuDecoder, context: int, rows: int, repeats: int) -> list[tuple[float, float]]:
    """Columns of the table for a step of `rows` after `context` tokens."""
    tokens, every = list(range(5, 5 + rows)), frozenset(range(decoder.config.layers))
    for first in range(0, context, 128):
        decoder.forward([7] * min(128, context - first), first)

    def without(attention: frozenset[int], mlp: frozenset[int]) -> tuple[float, float]:
        return timed(lambda: decoder.forward(tokens, context, Skip(attention, mlp)), repeats)

    nothing, attention, mlp = without(every, every), without(frozenset(), every), without(every, frozenset())
    hidden = decoder.forward(tokens, context)
    return [
        nothing,
        (attention[0] - nothing[0], attention[1]),
        (mlp[0] - nothing[0], mlp[1]),
        timed(lambda: decoder.logits(hidden), repeats),
        timed(lambda: decoder.logits(decoder.forward(tokens, context)), repeats),
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=demo_model("target"))
    parser.add_argument("--quant", choices=("nf4", "fp4", "int8"))
    parser.add_argument("--context", type=int, default=256, help="tokens in the cache before a step")
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = Checkpoint.open(options.model)
    decoder = CpuDecoder(checkpoint, 1024, options.quant)
    c = decoder.config
    weights = c.parameters()
    print(f"{weights / 1e6:.1f} M weights, {c.layers} layers; microseconds, medians and spread between quartiles\n")
    print("| rows | calls, embedding | attention | MLP | head | all | sums alone |")
    print("|---|---|---|---|---|---|---|")
    sums = sum_rate()
    for rows in ROWS:
        found = parts(decoder, options.context, rows, options.repeats)
        cells = " | ".join(f"{middle:,.0f} ± {spread / 2:,.0f}" for middle, spread in found)
        least = 1e6 * rows * (weights - (0 if c.tied else c.vocab * c.hidden)) / sums
        print(f"| {rows} | {cells} | {least:,.0f} |")
    rate = read_rate()
    print(f"\nOne core makes {sums / 1e9:.0f} billion multiply-adds a second and reads {rate / 1e9:.1f} GB/s: ", end="")
    held = decoder.memory()
    print(f"{1e6 * held / rate:,.0f} microseconds for {held / 1e6:.1f} MB of weights and cache.")


if __name__ == "__main__":
    main()
