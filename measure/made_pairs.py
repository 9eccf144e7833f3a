"""Writes random pairs for which no strategy pays, to measure `auto`: `python -m measure.made_pairs FOLDER`.

With `--agreeing 0.8` it writes `target.gguf` of 1.7B and `draft.gguf` of 0.2B, which agree after that share of tokens.

`dear` is a small Llama with a draft as expensive as itself, `dear-draft`; `slow` is a larger one without a draft. Their
weights are random, so that their texts resemble none that anything was tuned for.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from measure.agreeing_pair import write_pair
from specchat.config.paths import demo_model

VOCAB, SPECIAL = 3072, 16
"""Tokens of the demo's tokenizer, and the special ones at their start."""
DISAGREEMENT = 0.1
"""Noise on the draft's matrices, in standard deviations of their weights."""


def llama(
    folder: Path,
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    seed: int,
    noise: float = 0.0,
    vocab: int = VOCAB,
    context: int = 1024,
) -> None:
    """Write an untied random Llama with the demo's tokenizer; `noise` makes a variant that often agrees.

    Of a larger `vocab` the tokens behind the tokenizer's are padding.
    """
    made = torch.Generator().manual_seed(seed)
    other = torch.Generator().manual_seed(seed + 1)

    def matrix(outputs: int, inputs: int, scale: float) -> torch.Tensor:
        weights = torch.randn(outputs, inputs, generator=made) * scale
        return weights + noise * scale * torch.randn(outputs, inputs, generator=other)

    def norm() -> torch.Tensor:
        return 1 + 0.1 * torch.randn(hidden, generator=made)

    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden, 0.5), "model.norm.weight": norm()}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in "qkvo":
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = matrix(hidden, hidden, 1.6 / hidden**0.5)
        for name, outputs, inputs in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
            tensors[f"{prefix}mlp.{name}_proj.weight"] = matrix(outputs, inputs, 1.6 / inputs**0.5)
        tensors |= {f"{prefix}{name}_layernorm.weight": norm() for name in ("input", "post_attention")}
    head = matrix(vocab, hidden, 1.6 / hidden**0.5)
    head[:SPECIAL] = head[VOCAB:] = 0.0  # never the likeliest, so that replies end at their limit
    tensors["lm_head.weight"] = head
    settings = {
        "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocab,
        "max_position_embeddings": context, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "eos_token_id": 1, "torch_dtype": "float32",
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(demo_model("target") / name, folder / name)


def main() -> None:
    """Write all of them, or the pair that agrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agreeing", type=float)
    options = parser.parse_args()
    folder = options.folder
    if options.agreeing is not None:
        write_pair(folder, options.agreeing)
        return
    llama(folder / "dear", hidden=360, inner=960, layers=2, heads=6, seed=1)
    llama(folder / "dear-draft", hidden=360, inner=960, layers=2, heads=6, seed=1, noise=DISAGREEMENT)
    llama(folder / "slow", hidden=768, inner=2048, layers=10, heads=12, seed=3)


if __name__ == "__main__":
    main()
