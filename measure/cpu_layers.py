"""Measures layers of random models on the processor, each beside a plainer one of about the same size.

    python -m measure.cpu_layers experts [--layers 4] [--repeats 9] [--threads 1]
    python -m measure.cpu_layers recurrent

`experts` are those of a Qwen3-MoE in three formats, beside a dense model with as many weights for a row; `recurrent`
are those of a Qwen3.5, beside one with attention in all layers, also rolled back to the token before the last one, as
after a draft. Embeddings and head are left out: of so few layers they would be most of a step. Rows are unlike tokens.
The models take turns. The tables have milliseconds of a pass: of the processor for one thread, which others on the
machine change little, else those that pass.
"""

import argparse
from collections.abc import Iterator, Sequence
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
ROWS, PIECE = (1, 2, 4, 8, 16, 128), 100
PAUSE_S = 0.02
VOCAB = 1024
QWEN3_MOE: dict[str, Any] = {
    "hidden_size": 2048,
    "intermediate_size": 8 * 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": VOCAB,
    "max_position_embeddings": 1024,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "dtype": "float16",
}
"""Qwen3-30B-A3B's but for the vocabulary, as wide as the experts of a row."""
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True}
QWEN35: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "vocab_size": VOCAB,
    "max_position_embeddings": 1024,
    "rope_theta": 1e7,
    "tie_word_embeddings": True,
    "dtype": "float16",
}
"""Qwen3.5-9B's but for the vocabulary."""


def opened(folder: str, settings: Sequence[dict[str, Any]]) -> list[Checkpoint]:
    """Random checkpoints of these settings."""
    made = [Path(folder) / str(number) for number in range(len(settings))]
    return [
        Checkpoint.open(write_random(path, parse_config(path, one), 0, one))
        for path, one in zip(made, settings, strict=True)
    ]


def compared(
    models: Sequence[tuple[CpuDecoder, int]], context: int, options: argparse.Namespace
) -> Iterator[tuple[int, list[float]]]:
    """Numbers of rows, and the median milliseconds of each model's passes over them after `context` tokens.

    The number beside a model counts tokens that are rolled back before a pass.
    """
    clock = process_time if options.threads == 1 else perf_counter
    for model, _ in models:
        for start in range(0, context, PIECE):
            model.forward([7 * i % VOCAB for i in range(start, start + PIECE)], start)
    for rows in ROWS:
        times: list[list[float]] = [[] for _ in models]
        for _ in range(1 + options.repeats):
            for (model, back), found in zip(models, times, strict=True):
                model.forward([1], context + back)
                sleep(PAUSE_S)
                started = clock()
                model.forward(range(rows), context)
                found.append(1e3 * (clock() - started))
        yield rows, [median(found[1:]) for found in times]


def experts(folder: str, options: argparse.Namespace) -> None:
    """Print the table of experts."""
    shape = QWEN3_MOE | {"num_hidden_layers": options.layers}
    mixture = shape | EXPERTS | {"model_type": "qwen3_moe", "num_experts": 32}
    checkpoints = opened(folder, (mixture, shape | {"model_type": "qwen3"}))
    layers = checkpoints[0].config.recipe.layers
    every, read = (sum(getattr(one, of) for one in layers) / 1e6 for of in ("parameters", "active"))
    print(f"{every:,.0f} million weights in {options.layers} layers, {read:,.0f} million for a row\n")
    print("| | rows | ms | of one row | ms, dense |\n|---|---|---|---|---|")
    for quant in FORMATS:
        models = [(CpuDecoder(one, 512, quant, options.threads), 0) for one in checkpoints]
        one_row = 0.0
        for rows, (mine, dense) in compared(models, 100, options):
            one_row = one_row or mine
            print(f"| {quant or 'float16'} | {rows} | {mine:.1f} | {mine / one_row:.2f} | {dense:.1f} |", flush=True)


def recurrent(folder: str, options: argparse.Namespace) -> None:
    """Print the table of recurrent layers."""
    shape = QWEN35 | {"num_hidden_layers": options.layers}
    checkpoints = opened(folder, (shape, shape | {"layer_types": ["full_attention"] * options.layers}))
    mine, attention = (CpuDecoder(one, 1024, threads=options.threads) for one in checkpoints)
    print("| rows | ms | rolled back | attention alone |\n|---|---|---|---|")
    for rows, times in compared(((mine, 0), (mine, 1), (attention, 0)), 400, options):
        print(f"| {rows} | {' | '.join(f'{time:.1f}' for time in times)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("of", choices=("experts", "recurrent"))
    for name, usual in (("layers", 4), ("repeats", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with TemporaryDirectory() as folder:
        {"experts": experts, "recurrent": recurrent}[options.of](folder, options)


if __name__ == "__main__":
    main()
