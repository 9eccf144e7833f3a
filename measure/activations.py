"""Measures rows and heads in 8 bits: `python -m measure.activations [--model PATH] [--quant QUANT] [--tokens N]`.

The model, a folder or a GGUF file, reads the pages of this checkout in texts of N tokens. The table
has the Kullback-Leibler divergence of the next token's distribution from that without rounding, and how often both have
the same likeliest token. `--type` writes the folder as a GGUF file first. `--outliers FACTOR` multiplies every 64th
weight of the norms before products of layers, and divides the matrices' columns: the model is the same, its rows have
outliers.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from measure.kv_cache import texts
from specchat.config.paths import demo_model
from specchat.engine.divergence import Divergence, log_probabilities
from specchat.engine.llama_cpp.export import export
from specchat.engine.protocol.pair import QUANTS, Activations, QuantisedHead
from specchat.engine.runners.host import NativeModel, host_model
from specchat.engine.weights.checkpoint import Checkpoint

EVERY = 64
"""Columns of which one is an outlier."""


def plant_outliers(folder: Path, factor: float, made: Path) -> Path:
    """A copy of a folder of one file, a Llama's in its names, whose hidden states have outliers in each layer."""
    copytree(folder, made)
    tensors = load_file(made / "model.safetensors")
    for layer in Checkpoint.open(folder).config.recipe.layers:
        for norm, matrix in zip(layer.norms, (layer.attention.qkv, layer.gated.gate_up), strict=True):
            tensors[f"{norm.name}.weight"][::EVERY] *= factor
            for name in matrix.names:
                tensors[f"{name}.weight"][:, ::EVERY] /= factor
    save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
    return made


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=demo_model("target"))
    parser.add_argument("--quant", choices=QUANTS)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--texts", type=int, default=3)
    parser.add_argument("--type", choices=("q8_0", "q4_0"))
    parser.add_argument("--outliers", type=float)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        model = options.model
        if options.outliers:
            model = plant_outliers(model, options.outliers, Path(folder) / "planted")
        if options.type:
            export(Checkpoint.open(model), Path(folder) / "model.gguf", options.type)
            model = Path(folder) / "model.gguf"
        measure(model, options)


def measure(model: Path, options: Namespace) -> None:
    """Print the table of a model."""
    opened = Checkpoint.open(model)
    read = texts(opened, options.tokens, options.texts)
    forms: dict[str, tuple[Activations, QuantisedHead | None]] = {}
    if options.quant or opened.gguf:
        forms["int8 rows"] = "int8", None
    if opened.gguf is None:
        forms |= {"int8 head": ("float32", "int8"), "int8 rows and head": ("int8", "int8")}
        forms["bfloat16 rows"] = "bfloat16", None

    def running(activations: Activations, head: QuantisedHead | None) -> NativeModel:
        return host_model(replace(opened, activations=activations, head=head), options.tokens, options.quant)

    whole = running("float32", None)

    def compared(rounded: NativeModel) -> Iterator[tuple[Tensor, Tensor]]:
        for tokens in read:
            yield from zip(log_probabilities(whole, tokens), log_probabilities(rounded, tokens), strict=True)

    print("| model | rounded | tokens | mean KL, nats | 99 % below | largest | same likeliest |")
    print("|---" * 7 + "|")
    with torch.inference_mode():
        for words, form in forms.items():
            found = Divergence.of(compared(running(*form)))
            shares = f"{found.mean:.2e} | {found.most:.2e} | {found.largest:.2e} | {found.alike:.2%}"
            outliers = options.outliers and f"outliers of {options.outliers:g}"
            name = ", ".join(filter(None, (options.model.name, options.type, options.quant, outliers)))
            print(f"| {name} | {words} | {found.tokens:,} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
