"""Measures rows and heads in 8 bits: `python -m measure.activations [--model PATH] [--quant QUANT] [--tokens N]`.

The model, a folder or a GGUF file, reads the pages of this checkout by the reference, in texts of N tokens. The table
has the Kullback-Leibler divergence of the next token's distribution from that without rounding, and how often both have
the same likeliest token.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from measure.kv_cache import texts
from specchat.config.paths import demo_model
from specchat.engine.check_activations import probabilities
from specchat.engine.divergence import Divergence
from specchat.engine.protocol.pair import QUANTS
from specchat.engine.reference.tensors import CheckpointTensors
from specchat.engine.weights.checkpoint import Checkpoint


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=demo_model("target"))
    parser.add_argument("--quant", choices=QUANTS)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--texts", type=int, default=3)
    options = parser.parse_args()
    opened = Checkpoint.open(options.model)
    read = texts(opened, options.tokens, options.texts)
    whole = CheckpointTensors(opened, options.quant)
    forms = {"rows": (whole, True)}
    if opened.gguf is None:
        head = CheckpointTensors(replace(opened, head="int8"), options.quant)
        forms |= {"head": (head, False), "rows and head": (head, True)}

    def compared(tensors: CheckpointTensors, int8_rows: bool) -> Iterator[tuple[Tensor, Tensor]]:
        for tokens in read:
            yield from zip(
                probabilities(opened.config.recipe, whole, tokens, False),
                probabilities(opened.config.recipe, tensors, tokens, int8_rows),
                strict=True,
            )

    print("| model | in 8 bits | tokens | mean KL, nats | 99 % below | largest | same likeliest |")
    print("|---" * 7 + "|")
    with torch.inference_mode():
        for words, (tensors, int8_rows) in forms.items():
            found = Divergence.of(compared(tensors, int8_rows))
            shares = f"{found.mean:.2e} | {found.most:.2e} | {found.largest:.2e} | {found.alike:.2%}"
            name = f"{options.model.name}{f', {options.quant}' if options.quant else ''}"
            print(f"| {name} | {words} | {found.tokens:,} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
