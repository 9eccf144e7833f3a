"""Compares the adaptive number of threads with each fixed number, while other programs come and go.

    python -m measure.cpu_threads [--shape 0.6b] [--passes 400] [--rows 1]

Random weights in float16, 100 cached tokens. Each phase runs a number of busy loops beside the passes, which take turns
with every fixed number of threads and with the adaptive one.
"""

import argparse
from collections import Counter
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

from measure.random_qwen3 import SHAPES, write
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.cpu.threads.tuning import choices
from specchat.engine.weights.checkpoint import Checkpoint

CONTEXT = 100
"""Cached tokens."""
LEARNT = 0
"""Stands for the adaptive number among the fixed ones."""


def busy() -> None:
    """Keep a processor busy."""
    while True:
        pass


def timed(decoder: CpuDecoder, rows: int) -> float:
    """Milliseconds of a pass of `rows`."""
    started = perf_counter()
    decoder.forward([7] * rows, CONTEXT)
    return 1e3 * (perf_counter() - started)


def phase(
    fixed: CpuDecoder, learning: CpuDecoder, rows: int, passes: int
) -> tuple[dict[int, list[float]], Counter[int]]:
    """Milliseconds of passes by number of threads, and the counts of adaptive numbers."""
    times: dict[int, list[float]] = {}
    taken: Counter[int] = Counter()
    for _ in range(passes):
        for count in choices(fixed.threads):
            fixed.use_threads(count)
            times.setdefault(count, []).append(timed(fixed, rows))
        times.setdefault(LEARNT, []).append(timed(learning, rows))
        taken[learning.working] += 1
    return times, taken


def main() -> None:
    """Print a row for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="0.6b")
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--rows", type=int, default=1)
    options = parser.parse_args()
    most = torch.get_num_threads()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "random.gguf"
        write(file, SHAPES[options.shape], "F16")
        opened = Checkpoint.open(file)
        fixed, learning = (CpuDecoder(opened, 512, threads=most) for _ in range(2))
    for decoder in (fixed, learning):
        decoder.forward(list(range(CONTEXT)), 0)
    counts = choices(most)
    print("| busy loops beside | " + " | ".join(f"{count} threads" for count in counts) + " | learnt | its numbers |")
    print("|---|" + "---|" * (len(counts) + 2))
    for loops in (0, 1, most, 0):
        with ExitStack() as stack:
            for _ in range(loops):
                process = get_context("spawn").Process(target=busy, daemon=True)
                process.start()
                stack.callback(process.kill)
            times, taken = phase(fixed, learning, options.rows, options.passes)
        cells = [f"{median(times[count]):.1f} ms" for count in (*counts, LEARNT)]
        numbers = ", ".join(f"{count}: {100 * of / options.passes:.0f} %" for count, of in sorted(taken.items()))
        print(f"| {loops} | " + " | ".join(cells) + f" | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
