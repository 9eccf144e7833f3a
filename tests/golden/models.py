"""What models of our own give on the processor: the demo's two, and random ones of each family and setting."""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.config.paths import demo_model
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.model.passes import PassRows, Skip
from specchat.engine.model.tree_layout import depth_first
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.bnb import quantised_in_place
from tests.engine.tiny import FAMILIES, FAMILY, VOCAB, checkpoint

PARENTS = [0, 1, 2, 1, 4, 0, 6, 7, 8, 0]
"""A tree: node i + 1 follows PARENTS[i]."""
PATH = [6, 7, 8]
PROMPT, CHAIN = 150, 7
"""Tokens read as a prompt, and then in one pass."""
SHOWN = 8
"""Numbers of a case that are kept as they are, so that a difference can be told."""

Bits = dict[str, Any]


def digest(*tensors: Tensor) -> str:
    """Of all their bytes."""
    return sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()[:32]


def drawn(stream: np.random.RandomState, like: Tensor) -> Tensor:
    """Random numbers about as large as those of `like`, the same on each machine: torch's own are not."""
    numbers = like.double()
    spread = float(numbers.std()) if like.numel() > 1 else 0.0
    scale = 2.0 ** round(float(np.log2(spread))) if spread else 0.125
    centre = float(round(float(numbers.mean())))
    found = centre + scale * 3.5 * (stream.random_sample(tuple(like.shape)) - 0.5)
    return torch.from_numpy(found).to(like.dtype)


def refilled(folder: Path, seed: int, dtype: torch.dtype | None = None) -> Path:
    """The weights in `folder` replaced by `drawn` ones, as `dtype` if one is named."""
    stream = np.random.RandomState(seed)
    for file in sorted(folder.glob("*.safetensors")):
        tensors = load_file(file)
        for name in sorted(tensors):
            if tensors[name].is_floating_point():
                tensors[name] = drawn(stream, tensors[name]).to(dtype or tensors[name].dtype)
        save_file(tensors, file, metadata={"format": "pt"})
    return folder


def near(folder: Path, base: Path, seed: int) -> Path:
    """A copy of `base` with noise on every matrix: a draft that agrees more or less often."""
    folder.mkdir(parents=True)
    for file in base.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    stream, tensors = np.random.RandomState(seed), load_file(base / "model.safetensors")
    noisy = {name: one + 0.05 * drawn(stream, one) if one.dim() > 1 else one for name, one in sorted(tensors.items())}
    save_file(noisy, folder / "model.safetensors")
    return folder


def token_ids(count: int, vocab: int = VOCAB) -> list[int]:
    """Some that look random."""
    return [(position * position * 31 + position * 17 + 5) % vocab for position in range(count)]


class Model:
    """All that is asked of a model here."""

    def __init__(self, folder: Path, quant: Quant | None = None) -> None:
        self._decoder = CpuDecoder(Checkpoint.open(folder), 256, quant)
        self.layers, self.vocab = self._decoder.config.layers, self._decoder.config.vocab
        self.recorded = [0, self.layers // 2, self.layers]
        self._decoder.record_states(self.recorded)

    def rows(self, tokens: list[int], start: int) -> Tensor:
        """Logits of a pass."""
        return self._decoder.logits_after(tokens, start).clone()

    def tree(self, tokens: list[int], start: int) -> Tensor:
        """Logits of a tree of PARENTS, of which PATH is then kept."""
        found = self._decoder.logits_after(tokens, start, depth_first(PARENTS)).clone()
        self._decoder.keep(PATH, start + 1)
        return found

    def skipping(self, token: int, start: int) -> Tensor:
        """Logits without the attention of the second layer and the MLP of the last."""
        skip = Skip(frozenset({1}), frozenset({self.layers - 1}))
        return self._decoder.logits(self._decoder.forward([token], start, skip)).clone()

    def early(self, token: int, start: int) -> Tensor:
        """Logits after the first half of the layers."""
        half = self._decoder.run_and_record(
            self._decoder.embed([token]), range(self.layers // 2), PassRows([token], start)
        )
        return self._decoder.logits(half).clone()

    def states(self, layer: int, last: int) -> Tensor:
        """The hidden states after `layer` layers."""
        return self._decoder.states(layer, 0, last)

    def entries(self, last: int) -> tuple[Tensor, Tensor]:
        """The KV entries."""
        return torch.stack(self._decoder.cache.keys)[:, :, :last], torch.stack(self._decoder.cache.values)[:, :, :last]


def bits(model: Model) -> Bits:
    """Digests of what a model gives, and a few of its numbers."""
    ids = token_ids(240, model.vocab)
    found: dict[str, str] = {}
    prompt = torch.cat([model.rows(ids[:128], 0), model.rows(ids[128:PROMPT], 128)])
    found["prompt"], at = digest(prompt), PROMPT
    one = model.rows(ids[at : at + 1], at)
    found["one"], at = digest(one), at + 1
    found["chain"], at = digest(model.rows(ids[at : at + CHAIN], at)), at + CHAIN
    found["tree"] = digest(model.tree(ids[at : at + 1 + len(PARENTS)], at))
    at += 1 + len(PATH)
    found["after the tree"], at = digest(model.rows(ids[at : at + 1], at)), at + 1
    found |= {f"states after {layer}": digest(model.states(layer, at)) for layer in model.recorded}
    found["entries"] = digest(*model.entries(at))
    found["skipping"] = digest(model.skipping(ids[at], at))
    found["early"] = digest(model.early(ids[at], at))
    return {"sha256": found, "shown": one[0, :SHOWN].tolist()}


def demo(name: str, root: Path) -> Bits:
    del root
    return bits(Model(demo_model(name)))


def dense(dtype: str, changes: Mapping[str, Any], root: Path) -> Bits:
    folder = checkpoint(root / "model", torch_dtype=dtype, **changes)
    return bits(Model(refilled(folder, 3, getattr(torch, dtype))))


LARGER = {"hidden_size": 128, "intermediate_size": 128}
"""As blocks of 4-bit weights want it."""


def quantised(quant: Quant, stored: bool, changes: Mapping[str, Any], root: Path) -> Bits:
    folder = refilled(checkpoint(root / "model", **LARGER | dict(changes)), 4)
    if stored:
        quantised_in_place(folder, quant)
    return bits(Model(folder, None if stored else quant))


MORE: dict[str, dict[str, Any]] = {
    "mimo": {"model_type": "mimo", "num_key_value_heads": 2, "attention_bias": True, "tie_word_embeddings": False},
    "llama of one key head": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3, "rope_theta": 500.0},
    "qwen3 of wide heads": {"model_type": "qwen3", "num_key_value_heads": 4, "head_dim": 80},
    "mistral untied": {"model_type": "mistral", "num_key_value_heads": 2, "tie_word_embeddings": False},
    "qwen2 untied": {"model_type": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": False},
    "yarn, truncated": {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "attention_factor": 1.2,
        }
    },
}

WIDE: dict[str, tuple[Quant | None, dict[str, Any]]] = {
    "llama": ("nf4", LARGER),
    "qwen3_moe": ("nf4", LARGER | {"moe_intermediate_size": 128}),
    "gemma4_moe": ("nf4", LARGER | {"moe_intermediate_size": 128}),
    "gemma4_e": ("nf4", LARGER),
    "qwen3_5": (None, LARGER | {"linear_value_head_dim": 80}),
    "granitemoehybrid": ("nf4", LARGER | {"mamba_n_heads": 16, "mamba_n_groups": 1}),
}
"""Families whose layers are not alike, with a quantisation and shapes for it."""


def passes(kind: str, root: Path) -> Bits:
    """Of passes of 30, 1, 2, 3 and 6 tokens."""
    quant, shape = WIDE[kind]
    folder = refilled(checkpoint(root / "model", **FAMILIES[kind] | shape), 5)
    decoder = CpuDecoder(Checkpoint.open(folder), 64, quant)
    logits = [decoder.logits_after(list(range(20, 20 + count)), 0).clone() for count in (30, 1, 2, 3, 6)]
    return {"sha256": {"passes": digest(*logits)}, "shown": logits[0][0, :SHOWN].tolist()}


Case = Callable[[Path], Bits]
CASES: dict[str, Case] = {
    **{f"demo {name}": partial(demo, name) for name in ("target", "draft")},
    **{f"{name} float32": partial(dense, "float32", changes) for name, changes in {**FAMILY, **MORE}.items()},
    **{
        f"{name} {dtype}": partial(dense, dtype, FAMILY[name])
        for name in ("llama-bias", "mistral", "qwen2", "qwen3")
        for dtype in ("float16", "bfloat16")
    },
    **{
        f"{name} {quant}{' stored' if stored else ''}": partial(quantised, quant, stored, changes)
        for name, changes in {"llama": {"num_key_value_heads": 2}, "qwen3": FAMILY["qwen3"]}.items()
        for quant in ("int8", "nf4", "fp4")
        for stored in ((False, True) if name == "llama" else (False,))
    },
    **{f"passes of {kind}": partial(passes, kind) for kind in WIDE},
}
"""What is computed by name; each writes its checkpoint to a folder of its own."""


def computed(cases: Mapping[str, Case]) -> dict[str, Bits]:
    """What cases give, by name."""
    found: dict[str, Bits] = {}
    for name, case in cases.items():
        with TemporaryDirectory() as root:
            found[name] = case(Path(root))
    return found
