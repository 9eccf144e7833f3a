"""Measures llama.cpp's passes by number of rows: `python -m measure.gguf_rows`.

The demo target runs as GGUF of every type, without padding. The ratio of two rows to one is the cost of padding a
single row for plain decoding, and the saving of running it alone.
"""

from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

from specchat.config.paths import demo_model
from specchat.engine.llama_cpp.context import GgufSettings
from specchat.engine.llama_cpp.export import KINDS, export
from specchat.engine.llama_cpp.file import GgufFile
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.llama_cpp.proof import prove
from specchat.engine.weights.checkpoint import Checkpoint

ROWS = (1, 2, 4, 6, 8, 12, 16)
PASSES = 60
CACHED_TOKENS = 64
"""A short chat."""


def milliseconds(model: GgufModel) -> dict[int, float]:
    """First quartile of passes by number of rows, in turns: other programs only add time."""
    times: dict[int, list[float]] = {rows: [] for rows in ROWS}
    model.write(range(CACHED_TOKENS), 0)
    for _ in range(PASSES):
        for rows, seen in times.items():
            started = perf_counter()
            model.forward(range(rows), CACHED_TOKENS)
            seen.append(1e3 * (perf_counter() - started))
    return {rows: quantiles(seen)[0] for rows, seen in times.items()}


def main() -> None:
    print("| kind | row goes as | " + " | ".join(f"{rows} rows" for rows in ROWS) + " |")
    print("|---" * (len(ROWS) + 2) + "|")
    with TemporaryDirectory(prefix="specchat-gguf-") as folder:
        for kind in KINDS:
            file = Path(folder) / f"{kind}.gguf"
            export(Checkpoint.open(demo_model("target")), file, kind)
            model = GgufModel(GgufFile(file, 0, lambda _: None), GgufSettings(1024, 1, "f16", False))
            proof = prove(model)
            goes = "alone" if proof.alone else str(proof.padding[1])
            cost = milliseconds(model)
            print(f"| {kind} | {goes} | " + " | ".join(f"{cost[rows]:.2f}" for rows in ROWS) + " |", flush=True)


if __name__ == "__main__":
    main()
