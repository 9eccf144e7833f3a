"""Measures an int8 KV cache beside the full one: `python -m measure.kv_cache [--model PATH] [--tokens N]`.

The model, a folder or a GGUF file, reads the pages of this checkout in texts of N tokens, once with each cache. The
table has the Kullback-Leibler divergence of the next token's distribution with int8 from that with full precision, how
often both have the same likeliest token, the bytes of a position, and the time of a pass over a text's last row alone.
"""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from torch import Tensor

from specchat.config.paths import demo_model
from specchat.engine.divergence import Divergence, log_probabilities
from specchat.engine.memory.host_need import cache_bytes
from specchat.engine.runners.host import NativeModel, host_model
from specchat.engine.weights.checkpoint import Checkpoint

PAGES = Path(__file__).parents[1] / "docs"
PASSES = 24


def texts(checkpoint: Checkpoint, length: int, count: int) -> list[list[int]]:
    """Token ids of `count` texts of `length` tokens, one page after another."""
    pages = "\n".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
    tokens = checkpoint.tokenizer().encode(pages[: 8 * length * count])
    return [tokens[first : first + length] for first in range(0, length * count, length)]


def milliseconds(models: Sequence[NativeModel], at: int) -> list[float]:
    """First quartile of passes over the row at position `at`, in turns: other programs only add time."""
    times: list[list[float]] = [[] for _ in models]
    for _ in range(PASSES):
        for model, seen in zip(models, times, strict=True):
            started = perf_counter()
            model.forward([1], at)
            seen.append(1e3 * (perf_counter() - started))
    return [quantiles(seen)[0] for seen in times]


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=demo_model("target"))
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--texts", type=int, default=4)
    options = parser.parse_args()
    full = Checkpoint.open(options.model)
    int8 = replace(full, config=full.config.with_cache("int8"))
    models = [host_model(one, options.tokens) for one in (full, int8)]
    times = list[list[float]]()

    def compared() -> Iterator[tuple[Tensor, Tensor]]:
        for tokens in texts(full, options.tokens, options.texts):
            yield from zip(*(log_probabilities(model, tokens) for model in models), strict=True)
            times.append(milliseconds(models, len(tokens) - 1))

    found = Divergence.of(compared())
    sizes = [cache_bytes(one.config.recipe, 1024) / 1024 for one in (full, int8)]
    print("| model | tokens | mean KL, nats | 99 % below | largest | same likeliest | bytes a position | last row |")
    print("|---" * 8 + "|")
    of_rows = " / ".join(f"{min(seen):.2f} ms" for seen in zip(*times, strict=True))
    shares = f"{found.mean:.2e} | {found.most:.2e} | {found.largest:.2e} | {found.alike:.2%}"
    held = " / ".join(f"{size:,.0f}" for size in sizes)
    print(f"| {options.model.name} | {found.tokens:,} | {shares} | {held} | {of_rows} |")


if __name__ == "__main__":
    main()
