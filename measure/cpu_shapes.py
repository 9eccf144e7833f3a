"""Measures random weights on the processor in three formats, beside llama.cpp (the extra `gguf`).

    python -m measure.cpu_shapes [--shape 0.2b] [--repeats 12] [--threads 1] [--prompt 128]

Both take turns with the same number of threads and 100 cached tokens. The table has milliseconds of a pass with logits,
of a prompt with logits of the last row, and the speedup over llama.cpp: of the processor for one thread, which others
on the machine change little, else those that pass. First it says how far their logits are apart.
"""

import argparse
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep
from typing import Any, TypedDict

import llama_cpp
import torch

from measure import random_gguf
from measure.cpu_layers import EXPERTS, QWEN3_MOE, QWEN35
from specchat.bench.published import shaped
from specchat.bench.synthetic import write_random
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.llama_cpp.export import Kind, export
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import parse_config


class Sizes(TypedDict):
    """Sizes that differ between shapes."""

    hidden: int
    intermediate: int
    layers: int
    head_dim: int
    vocab: int


FORMATS: tuple[tuple[Quant | None, Kind], ...] = ((None, "f16"), ("int8", "q8_0"), ("nf4", "q4_0"))
CONTEXT, CHECKED = 100, (1, 2, 4, 8)
ROOM = 1024
PROMPT_REPEATS = 3
PAUSE_S = 0.02
SHAPES = {
    "0.2b": Sizes(hidden=1024, intermediate=3072, layers=14, head_dim=64, vocab=32000),
    "0.6b": Sizes(hidden=1024, intermediate=3072, layers=28, head_dim=128, vocab=151936),
    "1.7b": Sizes(hidden=2048, intermediate=6144, layers=28, head_dim=128, vocab=151936),
}
"""All have 16 heads and 8 KV heads; the larger two are Qwen3's."""
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma3-4b": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
        "layer_types": ["sliding_attention"] * 4,
        "vocab_size": 262_208 * 4 // 34,
    },
    "qwen3.5-4b": QWEN35 | {"hidden_size": 2560, "intermediate_size": 9216, "vocab_size": 248_320 * 4 // 32},
    "qwen3-moe": QWEN3_MOE
    | EXPERTS
    | {"model_type": "qwen3_moe", "num_experts": 32, "vocab_size": 151_936 * 4 // 48, "tie_word_embeddings": False},
}
"""Four layers each, and as much of the vocabulary as of the layers, so that the head takes its share of a step."""
LIMITS = {"num_hidden_layers": 4, "max_position_embeddings": ROOM, "dtype": "float16"}


def written(name: str, folder: Path) -> Checkpoint:
    """Write a random checkpoint of one of the shapes."""
    if name in FAMILIES:
        settings = FAMILIES[name] | LIMITS
        return Checkpoint.open(write_random(folder, parse_config(folder, settings), 0, settings))
    shape = shaped("llama", heads=16, kv_heads=8, context=ROOM, theta=1e4, tied=True, **SHAPES[name])
    return Checkpoint.open(write_random(folder, shape, 0))


def read(ours: CpuDecoder, tokens: list[int], start: int) -> torch.Tensor:
    """Hidden states of the last block of a text."""
    last = torch.empty(0)
    for first in range(0, len(tokens), PREFILL_ROWS):
        last = ours.forward(tokens[first : first + PREFILL_ROWS], start + first)
    return last


def rewind(ours: CpuDecoder, theirs: llama_cpp.Llama) -> None:
    """Let texts go on after the cached tokens, which are read anew where recurrent states do not go back so far.

    The last one is read alone: the next pass begins where it ended, as in a reply.
    """
    if ours.config.recipe.recurrent:
        theirs.reset()
        for tokens in (range(CONTEXT - 1), range(CONTEXT - 1, CONTEXT)):
            ours.forward(tokens, tokens.start)
            theirs.eval(list(tokens))
    theirs.n_tokens = CONTEXT


def apart(ours: CpuDecoder, theirs: llama_cpp.Llama) -> float:
    """Median difference of the logits after the cached tokens, over the spread of theirs."""
    mine = ours.logits(ours.forward(range(8), CONTEXT))
    rewind(ours, theirs)
    theirs.eval(list(range(8)))
    others = torch.tensor(theirs.scores[CONTEXT : CONTEXT + 8])
    return float((mine - others).abs().median() / others.std())


def compared(
    ours: CpuDecoder, theirs: llama_cpp.Llama, rows: int, logits: int, repeats: int, threads: int
) -> list[tuple[float, float]]:
    """Milliseconds of passes, each after a pause in which spinning threads fall asleep.

    `theirs` computes logits of the same rows.
    """
    clock = process_time if threads == 1 else perf_counter
    found, tokens = [], list(range(rows))
    for _ in range(repeats):
        rewind(ours, theirs)
        sleep(PAUSE_S)
        started = clock()
        ours.logits(read(ours, tokens, CONTEXT)[-logits:])
        ended = clock()
        sleep(PAUSE_S)
        again = clock()
        theirs.eval(tokens)
        found.append((1e3 * (ended - started), 1e3 * (clock() - again)))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=(*SHAPES, *FAMILIES), default="0.2b")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=128)
    options = parser.parse_args()
    threads = options.threads
    torch.set_num_threads(threads)
    with TemporaryDirectory() as folder:
        opened = written(options.shape, Path(folder) / "random")
        shape = opened.config
        active, head = sum(layer.active for layer in shape.recipe.layers), shape.recipe.head.parameters
        print(
            f"{shape.parameters() / 1e6:,.0f} million weights; a row reads {active / 1e6:,.0f} million of layers, ",
            end="",
        )
        print(f"{head / 1e6:,.0f} million of the head.", end=" ")
        for quant, kind in FORMATS[::2] if options.shape in FAMILIES else FORMATS:
            file = Path(folder) / f"{kind}.gguf"
            if options.shape in FAMILIES:
                random_gguf.write(opened, file, kind)
            else:
                export(opened, file, kind, tokenizer=False)
            ours = CpuDecoder(opened, ROOM, quant, threads)
            ours.forward(list(range(CONTEXT)), 0)
            for counts, repeats in ((CHECKED, options.repeats), ((options.prompt,), PROMPT_REPEATS)):
                theirs = llama_cpp.Llama(
                    str(file),
                    n_ctx=ROOM,
                    n_threads=threads,
                    n_threads_batch=threads,
                    logits_all=counts is CHECKED,
                    verbose=False,
                )
                theirs.eval(list(range(CONTEXT)))
                if kind == "f16" and counts is CHECKED:
                    print(f"Logits differ by {apart(ours, theirs):.4f} of their spread.\n")
                    print("| | rows | ms | ms, llama.cpp | times faster |\n|---|---|---|---|---|")
                for rows in counts:
                    times = compared(ours, theirs, rows, rows if counts is CHECKED else 1, repeats, threads)
                    mine, others = (median(column) for column in zip(*times, strict=True))
                    ratio = median(b / a for a, b in times)
                    name = f"{quant or 'float16'}, {kind}"
                    print(f"| {name} | {rows} | {mine:.1f} | {others:.1f} | {ratio:.2f} |", flush=True)
                theirs.close()


if __name__ == "__main__":
    main()
