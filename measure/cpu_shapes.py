"""Times passes beside llama.cpp's: `python -m measure.cpu_shapes FILE ... [--made 0.6b:Q4_0] [--threads 1]`.

Both read the same GGUF files after 100 cached tokens, in turn, with as many threads, and make logits of all rows of a
pass of up to eight, else of the last one. Ratios are of neighbours in time. Milliseconds are the processor's for one
thread, which other programs change little, else those that pass. llama.cpp is the extra `gguf`.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time, sleep
from typing import get_args

import llama_cpp
import torch

from measure.random_qwen3 import made
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.protocol.pair import Activations
from specchat.engine.weights.checkpoint import Checkpoint

CONTEXT, ROOM = 100, 1024
CHECKED = 8
"""Most rows of a check of drafts, which needs the logits of all."""
LONG = 3
"""A prompt is read once for so many passes of fewer rows."""
PAUSE_S = 0.02
"""Time in which spinning threads fall asleep."""


class Ours:
    """specchat's decoder with a fixed number of threads."""

    def __init__(self, file: Path, threads: int, clock: Callable[[], float], activations: Activations) -> None:
        checkpoint = replace(Checkpoint.open(file), activations=activations)
        self._decoder, self._clock = CpuDecoder(checkpoint, ROOM, threads=threads), clock
        self._decoder.forward(list(range(CONTEXT)), 0)

    def seconds(self, tokens: list[int]) -> float:
        """Seconds of a pass."""
        logits, begun = len(tokens) if len(tokens) <= CHECKED else 1, self._clock()
        for first in range(0, len(tokens), PREFILL_ROWS):
            hidden = self._decoder.forward(tokens[first : first + PREFILL_ROWS], CONTEXT + first)
        self._decoder.logits(hidden[-logits:])
        return self._clock() - begun


class Theirs:
    """llama.cpp in the same way, for passes of so many rows."""

    def __init__(self, file: Path, threads: int, clock: Callable[[], float], rows: int) -> None:
        self._clock = clock
        self._model = llama_cpp.Llama(
            str(file),
            n_ctx=ROOM,
            n_batch=rows,
            n_ubatch=rows,
            n_threads=threads,
            n_threads_batch=threads,
            logits_all=rows <= CHECKED,
            verbose=False,
        )
        self._model.eval(list(range(CONTEXT)))

    def seconds(self, tokens: list[int]) -> float:
        """Seconds of a pass."""
        self._model.n_tokens = CONTEXT
        begun = self._clock()
        self._model.eval(tokens)
        return self._clock() - begun

    def close(self) -> None:
        """Free its memory."""
        self._model.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--made", action="append", default=[], help="SHAPE:MIXTURE of a random file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 512])
    parser.add_argument("--activations", choices=get_args(Activations), default="int8")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = process_time if options.threads == 1 else perf_counter
    print("| file | rows | ms | ms, llama.cpp | times faster, quartiles | over one row |\n|---|---|---|---|---|---|")
    with made(options.made) as files:
        for file in (*options.files, *files):
            ours, one = Ours(file, options.threads, clock, options.activations), 0.0
            for rows in options.rows:
                theirs = Theirs(file, options.threads, clock, rows)
                times = []
                for _ in range(options.repeats if rows < PREFILL_ROWS else max(3, options.repeats // LONG)):
                    pair = []
                    for engine in (ours, theirs):
                        sleep(PAUSE_S)
                        pair.append(engine.seconds(list(range(rows))))
                    times.append(pair)
                mine, other = (1e3 * median(column) for column in zip(*times, strict=True))
                low, middle, high = quantiles([b / a for a, b in times], n=4)
                one = mine if rows == 1 else one
                over = f"{mine / one:.2f}" if one else "-"
                ratio = f"**{middle:.2f}** ({low:.2f}-{high:.2f})"
                print(f"| {file.name} | {rows} | {mine:.1f} | {other:.1f} | {ratio} | {over} |", flush=True)
                theirs.close()


if __name__ == "__main__":
    main()
