"""Measures a target's own layer for multi-token prediction with draft vocabularies, on the processor.

    python -m measure.layer_vocabulary [--sizes 65536 32768 16384] [--rounds 24]

The target has the shape of Qwen3.5-4B with four layers, of random weights; only its embeddings and its head matter. The
table has milliseconds of a drafted token, the layer included, after 64 tokens, and their ratio to those with the whole
vocabulary: sizes take turns.
"""

import argparse
from dataclasses import replace
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from safetensors.torch import save_file

from measure.cpu_layers import QWEN35, opened
from specchat.bench.summary import Spread
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.hardware.threads import leave_one_core
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.mtp import MtpHead
from specchat.engine.heads.mtp_settings import mtp
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint

PROMPT = 64
OURS = QWEN35 | {"hidden_size": 2560, "intermediate_size": 9216, "vocab_size": 248_320, "num_hidden_layers": 4}


def layer_of(target: Checkpoint) -> HeadFiles:
    """Random weights of the layer, in a file of their own."""
    path = target.folder / "layer.safetensors"
    files = HeadFiles(target.folder, target.settings, (path,))
    given = mtp(files, target.config, "mtp")
    layout, hidden, (layer,) = given.layout, target.config.hidden, given.recipe.layers
    shapes: dict[str, tuple[int, ...]]
    shapes = {f"{name}.weight": (rows, m.inputs) for m in layer.products for name, rows in m.parts}
    shapes |= {name: shape for norm in layer.norms for name, shape in norm.shapes.items()}
    shapes |= {f"{name}.weight": (hidden,) for name in (layout.of_state, layout.of_token, layout.final)}
    shapes[f"{layout.joined}.weight"] = (hidden, 2 * hidden)
    save_file({name: torch.randn(shape).mul(0.02).half() for name, shape in shapes.items()}, path)
    return files


def drafted_ms(head: MtpHead) -> float:
    started = perf_counter()
    head.logits(head.forward([1], PROMPT))
    return 1e3 * (perf_counter() - started)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--sizes", type=int, nargs="+", default=[65536, 32768, 16384])
    options.add_argument("--rounds", type=int, default=24)
    asked = options.parse_args()
    leave_one_core()
    with TemporaryDirectory(prefix="specchat-random-") as folder:
        target = opened(folder, [OURS])[0]
        model = host_model(target, 2 * PROMPT)
        assert isinstance(model, CachedDecoder)
        files, cached = layer_of(target), CachedModel(model)
        heads = {"whole": MtpHead(files, cached)}
        for size in asked.sizes:
            heads[str(size)] = MtpHead(replace(files, frequent=replace(target, drafts=tuple(range(size)))), cached)
        cached.begin([0] * (PROMPT + 1))
        times: dict[str, list[float]] = {name: [] for name in heads}
        for head in heads.values():
            head.forward([0] * PROMPT, 0)
        for _ in range(asked.rounds + 1):
            for name, head in heads.items():
                times[name].append(drafted_ms(head))
    for name, (_, *found) in times.items():
        ratio = Spread.of([one / whole for one, whole in zip(found, times["whole"][1:], strict=True)])
        assert ratio is not None
        print(f"{name:>6}: {median(found):.1f} ms, {ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f}) of the whole")


if __name__ == "__main__":
    main()
