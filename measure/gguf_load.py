"""Where the loading of GGUF files on a processor spends its time: `python -m measure.gguf_load`.

Seconds of the processor for a GB of a file, of one thread, the least of `--repeats`: a copy, which is what reading a
file from the system's cache costs at least, then a matrix taken apart, and laid out in panels.
"""

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
import torch

from measure.random_qwen3 import blocks
from specchat.engine.cpu.packed import block_parts, to_panels
from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import Blocks
from specchat.engine.memory.vectors import LANES

OUTPUTS, INPUTS = 4096, 2048


def least(run: Callable[[], object], repeats: int) -> float:
    """Processor seconds of the fastest of some runs."""
    found = []
    for _ in range(repeats):
        begun = process_time()
        run()
        found.append(process_time() - begun)
    return min(found)


def lay_out(weight: Blocks) -> None:
    """Lay a matrix out for products."""
    for numbers in block_parts(weight).values():
        if numbers is not None:
            to_panels(numbers, OUTPUTS // LANES)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print("| type | copy, s a GB | taken apart | panels |\n|---|---|---|---|")
    for name in ("Q4_0", "Q4_K", "Q6_K", "Q8_0"):
        kind = TYPES[name]
        octets = INPUTS // kind.size * kind.octets
        raw = torch.from_numpy(np.resize(blocks(name, 1 << 12), (OUTPUTS, octets)))
        weight = kind.read(raw, INPUTS)
        runs = (raw.clone, partial(kind.read, raw, INPUTS), partial(lay_out, weight))
        times = [1e9 / raw.numel() * least(run, repeats) for run in runs]
        print(f"| {name} | " + " | ".join(f"{one:.2f}" for one in times) + " |", flush=True)


if __name__ == "__main__":
    main()
