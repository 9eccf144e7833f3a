"""Measures the layers of a random Qwen3-MoE on the processor, beside a dense model with as many weights for a row.

    python -m measure.cpu_experts [--layers 4] [--experts 32] [--repeats 9] [--threads 1]

Embeddings and head are left out: of so few layers they would be most of a step. Rows are unlike tokens after 100 cached
ones. The two models take turns. The table has milliseconds of a pass: of the processor for one thread, which others on
the machine change little, else those that pass.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep
from typing import Any

import torch

from specchat.bench.synthetic import write_random
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import parse_config

FORMATS: tuple[Quant | None, ...] = (None, "int8", "nf4")
CONTEXT, ROWS = 100, (1, 2, 4, 8, 16, 128)
PAUSE_S = 0.02
VOCAB = 1024
TOP, WIDTH = 8, 768
SHAPE: dict[str, Any] = {
    "hidden_size": 2048,
    "intermediate_size": TOP * WIDTH,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": VOCAB,
    "max_position_embeddings": 1024,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "dtype": "float16",
}
"""Qwen3-30B-A3B's but for the vocabulary."""
EXPERTS: dict[str, Any] = {"num_experts_per_tok": TOP, "moe_intermediate_size": WIDTH, "norm_topk_prob": True}


@dataclass(frozen=True)
class Options:
    """Layers and experts of the model, passes that are timed, and threads."""

    layers: int
    experts: int
    repeats: int
    threads: int


def written(folder: Path, settings: dict[str, Any]) -> Checkpoint:
    """A random checkpoint of these settings."""
    return Checkpoint.open(write_random(folder, parse_config(folder, settings), 0, settings))


def compared(models: list[CpuDecoder], rows: int, options: Options) -> list[float]:
    """Median milliseconds of each model's passes over `rows` unlike tokens, after pauses in which threads sleep."""
    clock = process_time if options.threads == 1 else perf_counter
    times: list[list[float]] = [[] for _ in models]
    for _ in range(1 + options.repeats):
        for model, found in zip(models, times, strict=True):
            sleep(PAUSE_S)
            started = clock()
            model.forward(range(rows), CONTEXT)
            found.append(1e3 * (clock() - started))
    return [median(found[1:]) for found in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("layers", 4), ("experts", 32), ("repeats", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = Options(**vars(parser.parse_args()))
    torch.set_num_threads(options.threads)
    shape = SHAPE | {"num_hidden_layers": options.layers}
    with TemporaryDirectory() as folder:
        of_experts = shape | EXPERTS | {"model_type": "qwen3_moe", "num_experts": options.experts}
        opened = written(Path(folder) / "experts", of_experts)
        dense = written(Path(folder) / "dense", shape | {"model_type": "qwen3"})
        every, read = (sum(getattr(one, of) for one in opened.config.recipe.layers) for of in ("parameters", "active"))
        print(f"{every / 1e6:,.0f} million weights in {options.layers} layers, {read / 1e6:,.0f} million for a row\n")
        print("| | rows | ms | of one row | ms, dense |\n|---|---|---|---|---|")
        for quant in FORMATS:
            models = [CpuDecoder(one, 512, quant, options.threads) for one in (opened, dense)]
            for model in models:
                model.forward([7 * i % VOCAB for i in range(CONTEXT)], 0)
            one_row = 0.0
            for rows in ROWS:
                mine, others = compared(models, rows, options)
                one_row = one_row or mine
                cells = (quant or "float16", rows, f"{mine:.1f}", f"{mine / one_row:.2f}", f"{others:.1f}")
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
