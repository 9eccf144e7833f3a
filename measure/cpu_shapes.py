"""Measures random weights on the processor in three formats, beside llama.cpp (the extra `gguf`).

    python -m measure.cpu_shapes [--shape 0.2b] [--repeats 12] [--threads 1]

Both take turns with the same number of threads and 100 cached tokens. The table has milliseconds of a pass with logits,
of a prompt block with logits of the last row, and the speedup over llama.cpp.
"""

import argparse
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import TypedDict

import llama_cpp
import torch

from specchat.bench.published import shaped
from specchat.bench.synthetic import write_random
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.gguf.export import Kind, export
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig
from specchat.engine.pair import Quant


class Sizes(TypedDict):
    """Sizes that differ between shapes."""

    hidden: int
    intermediate: int
    layers: int
    head_dim: int
    vocab: int


FORMATS: tuple[tuple[Quant | None, Kind], ...] = ((None, "f16"), ("int8", "q8_0"), ("nf4", "q4_0"))
CONTEXT, CHECKED, PROMPT = 100, (1, 2, 4, 8), 128
PROMPT_REPEATS = 3
PAUSE_S = 0.02
SHAPES = {
    "0.2b": Sizes(hidden=1024, intermediate=3072, layers=14, head_dim=64, vocab=32000),
    "0.6b": Sizes(hidden=1024, intermediate=3072, layers=28, head_dim=128, vocab=151936),
    "1.7b": Sizes(hidden=2048, intermediate=6144, layers=28, head_dim=128, vocab=151936),
}
"""All have 16 heads and 8 KV heads; the larger two are Qwen3's."""


def shape_of(name: str) -> ModelConfig:
    """The configuration of one of the shapes."""
    return shaped("llama", heads=16, kv_heads=8, context=1024, theta=1e4, tied=True, **SHAPES[name])


def compared(
    ours: CpuDecoder, theirs: llama_cpp.Llama, rows: int, logits: int, repeats: int
) -> list[tuple[float, float]]:
    """Milliseconds of passes, each after a pause in which spinning threads fall asleep.

    `theirs` computes logits of the same rows.
    """
    found, tokens = [], list(range(rows))
    for _ in range(repeats):
        theirs.n_tokens = CONTEXT
        sleep(PAUSE_S)
        started = perf_counter()
        ours.logits(ours.forward(tokens, CONTEXT)[-logits:])
        ended = perf_counter()
        sleep(PAUSE_S)
        again = perf_counter()
        theirs.eval(tokens)
        found.append((1e3 * (ended - started), 1e3 * (perf_counter() - again)))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="0.2b")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    threads = options.threads
    torch.set_num_threads(threads)
    shape = shape_of(options.shape)
    print(f"{shape.parameters() / 1e6:,.0f} million weights\n")
    print("| | rows | ms | ms, llama.cpp | times faster |\n|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        opened = Checkpoint.open(write_random(Path(folder) / "random", shape, 0))
        for quant, kind in FORMATS:
            file = Path(folder) / f"{kind}.gguf"
            export(opened, file, kind, tokenizer=False)
            ours = CpuDecoder(opened, 512, quant, threads)
            ours.forward(list(range(CONTEXT)), 0)
            for counts, repeats in ((CHECKED, options.repeats), ((PROMPT,), PROMPT_REPEATS)):
                theirs = llama_cpp.Llama(
                    str(file),
                    n_ctx=512,
                    n_threads=threads,
                    n_threads_batch=threads,
                    logits_all=counts is CHECKED,
                    verbose=False,
                )
                theirs.eval(list(range(CONTEXT)))
                for rows in counts:
                    times = compared(ours, theirs, rows, rows if counts is CHECKED else 1, repeats)
                    mine, others = (median(column) for column in zip(*times, strict=True))
                    ratio = median(b / a for a, b in times)
                    name = f"{quant or 'float16'}, {kind}"
                    print(f"| {name} | {rows} | {mine:.1f} | {others:.1f} | {ratio:.2f} |", flush=True)
                theirs.close()


if __name__ == "__main__":
    main()
