"""Measures the layers of a random Qwen3.5 on the processor, beside one with attention in all layers.

    python -m measure.cpu_recurrent [--layers 4] [--repeats 9] [--threads 1]

Embeddings and head are left out: of so few layers they would be most of a step. Rows follow 400 cached tokens. The two
models take turns. The table has milliseconds of a pass: of the processor for one thread, which others on the machine
change little, else those that pass. A pass is rolled back where it begins a token before the last one, as after a
draft: states are then made again from the log.
"""

import argparse
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import torch

from measure.cpu_experts import written
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.model.rows import PREFILL_ROWS

CONTEXT, ROWS = 400, (1, 2, 4, 8, 16)
PROMPT, READINGS = 256, 2
VOCAB = 1024
SHAPE: dict[str, Any] = {
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("layers", 4), ("repeats", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = process_time if options.threads == 1 else perf_counter
    shape = SHAPE | {"num_hidden_layers": options.layers}
    with TemporaryDirectory() as folder:
        opened = [
            written(Path(folder) / "recurrent", shape),
            written(Path(folder) / "attention", shape | {"layer_types": ["full_attention"] * options.layers}),
        ]
        models = [CpuDecoder(one, 1024, threads=options.threads) for one in opened]
    sizes = [sum(layer.parameters for layer in one.config.recipe.layers) / 1e6 for one in opened]
    print(f"{sizes[0]:,.0f} million weights in {options.layers} layers, {sizes[1]:,.0f} with attention alone\n")
    print("| rows | ms | rolled back | attention alone |\n|---|---|---|---|")
    for model in models:
        for start in range(0, CONTEXT, 100):
            model.forward([7 * i % VOCAB for i in range(start, start + 100)], start)
    for rows in ROWS:
        times: list[list[float]] = [[], [], []]
        for _ in range(1 + options.repeats):
            for model, back, found in zip((models[0], *models), (0, 1, 0), times, strict=True):
                model.forward([1], CONTEXT + back)
                started = clock()
                model.forward(range(rows), CONTEXT)
                found.append(1e3 * (clock() - started))
        print(f"| {rows} | {' | '.join(f'{median(found[1:]):.1f}' for found in times)} |", flush=True)
    reading: list[list[float]] = [[], []]
    for _ in range(READINGS):
        for model, found in zip(models, reading, strict=True):
            started = clock()
            for start in range(0, PROMPT, PREFILL_ROWS):
                model.forward(range(PREFILL_ROWS), start)
            found.append(1e3 * (clock() - started) / PROMPT)
    mine, theirs = map(min, reading)
    print(f"\nA token of a prompt takes {mine:.1f} ms, and {theirs:.1f} with attention alone.")


if __name__ == "__main__":
    main()
