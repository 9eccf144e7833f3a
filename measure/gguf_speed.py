"""Times GGUF files beside llama.cpp: `python -m measure.gguf_speed FILE ... [--made 0.6b:Q4_K_M] [--threads 1]`.

specchat's own decoder and llama.cpp (the package xllamacpp) write as many tokens after the same prompt, in turn, with
as many threads. Ratios are of neighbours in time. Seconds are the processor's for one thread, which other programs
change little, else those that pass. The last column is a pass of eight rows, as drafts are verified, in passes of one.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, get_args

import torch

from measure.random_qwen3 import SHAPES, write
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.protocol.pair import Activations
from specchat.engine.weights.checkpoint import Checkpoint

ROOM, PROMPT = 512, list(range(300, 332))
ROWS = 8


class LlamaServer:
    """llama.cpp's server within this process, asked without HTTP."""

    def __init__(self, file: Path, threads: int, clock: Callable[[], float]) -> None:
        import xllamacpp  # type: ignore[import-not-found,import-untyped,unused-ignore]

        given = xllamacpp.CommonParams()
        given.model.path, given.hostnames, given.port = str(file), ["127.0.0.1"], 0
        given.n_ctx, given.n_parallel, given.n_gpu_layers, given.warmup = ROOM, 1, 0, False
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
        self._server, self._clock = xllamacpp.Server(given), clock

    def rate(self, tokens: int) -> float:
        """Tokens per second of plain greedy decoding after PROMPT."""
        # The prompt stays in its cache, but for the last token.
        request = {"prompt": PROMPT, "n_predict": tokens, "temperature": 0.0, "ignore_eos": True, "cache_prompt": True}
        begun = self._clock()
        reply: dict[str, Any] = self._server.handle_completions(request)
        seconds = self._clock() - begun
        return int(reply["timings"]["predicted_n"]) / seconds


class Ours:
    """specchat's decoder with a fixed number of threads."""

    def __init__(self, file: Path, threads: int, clock: Callable[[], float], activations: Activations) -> None:
        checkpoint = replace(Checkpoint.open(file), activations=activations)
        self._decoder, self._clock = CpuDecoder(checkpoint, ROOM, threads=threads), clock
        self._decoder.forward(PROMPT, 0)

    def rate(self, tokens: int) -> float:
        """Tokens per second of plain greedy decoding after PROMPT."""
        token = PROMPT[-1]
        begun = self._clock()
        for place in range(tokens):
            token = int(self._decoder.logits_after([token], len(PROMPT) + place).argmax())
        return tokens / (self._clock() - begun)

    def rows(self, repeats: int) -> float:
        """Seconds of a pass of ROWS rows over those of one, medians."""
        times = [[self._pass(rows) for _ in range(repeats)] for rows in (1, ROWS)]
        return median(times[1]) / median(times[0])

    def _pass(self, rows: int) -> float:
        begun = self._clock()
        self._decoder.logits_after(PROMPT[:rows], len(PROMPT))
        return self._clock() - begun


@contextmanager
def made(names: list[str]) -> Iterator[list[Path]]:
    """Random files of a shape and a mixture of types each, such as "0.6b:Q4_K_M"."""
    with TemporaryDirectory(prefix="specchat-gguf-") as folder:
        files = []
        for name in names:
            shape, _, mixture = name.partition(":")
            files.append(Path(folder) / f"qwen3-{shape}-{mixture}.gguf")
            write(files[-1], SHAPES[shape], mixture)  # type: ignore[arg-type]
        yield files


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--made", action="append", default=[], help="SHAPE:MIXTURE of a random file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--activations", choices=get_args(Activations), default="int8")
    parser.add_argument("--tokens", type=int, default=16, help="of a turn")
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = process_time if options.threads == 1 else perf_counter
    print("| file | tokens/s | llama.cpp | ratio, quartiles | 8 rows over 1 |\n|---|---|---|---|---|")
    with made(options.made) as files:
        for file in (*options.files, *files):
            ours = Ours(file, options.threads, clock, options.activations)
            theirs = LlamaServer(file, options.threads, clock)
            for one in (ours, theirs):
                one.rate(2)
            rates = [(ours.rate(options.tokens), theirs.rate(options.tokens)) for _ in range(options.repeats)]
            low, middle, high = quantiles([mine / other for mine, other in rates], n=4)
            mine, other = (median(column) for column in zip(*rates, strict=True))
            ratio = f"**{middle:.2f}** ({low:.2f}-{high:.2f})"
            print(
                f"| {file.name} | {mine:.1f} | {other:.1f} | {ratio} | {ours.rows(options.repeats):.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
