"""Writes random pairs for which no strategy pays, to measure `auto`: `python -m measure.made_pairs FOLDER`.

With `--agreeing 0.8` it writes `target.gguf` of 1.7B and `draft.gguf` of 0.2B, which agree after that share of tokens.

`dear` is a small Llama with a draft as expensive as itself, `dear-draft`; `even` one with a draft that breaks even;
`slow` is a larger one without a draft, `experts` a mixture, and `delta` has Gated DeltaNet. Their weights are random:
their texts resemble none that anything was tuned for.
"""

import argparse
import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from measure.agreeing_pair import write_pair
from specchat.config.paths import demo_model

VOCAB, SPECIAL = 3072, 16
"""Tokens of the demo's tokenizer, and the special ones at their start."""
DISAGREEMENT = 0.1
"""Noise on the draft's matrices, in standard deviations of their weights."""
FAINT = 0.16
"""Size of what the last three layers of `even` add: its first one says what all say of half of the tokens."""
SMALL: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 320, "intermediate_size": 880, "num_attention_heads": 5}
SMALL |= {"num_key_value_heads": 5, "head_dim": 64, "num_hidden_layers": 4, "max_position_embeddings": 1024}


def random_model(folder: Path, kind: str, settings: dict[str, Any], seed: int, noise: float = 0.0) -> None:
    """Write a random model with the demo's tokenizer, of a `model_type` of transformers and its config's settings.

    `noise` makes a variant of it that often agrees.

    Of a larger vocabulary the tokens behind the tokenizer's are padding.
    """
    config = AutoConfig.for_model(kind, **settings, tie_word_embeddings=False, eos_token_id=1, pad_token_id=0)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    made, other = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "norm" in name:
                values += 0.1 * torch.randn(values.shape, generator=made)
            elif values.ndim > 1 and "conv1d" not in name:
                scale = 0.5 if "embed" in name else 1.6 / values.shape[-1] ** 0.5
                values.normal_(0.0, scale, generator=made)
                values += noise * scale * torch.randn(values.shape, generator=other)
        head = model.lm_head.weight
        head[:SPECIAL] = head[VOCAB:] = 0.0  # never the likeliest, so that replies end at their limit
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()  # it would have replies sampled greedily
    _add_tokenizer(folder)


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
    """Write a random Llama of this shape, as `random_model` does."""
    settings = {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "max_position_embeddings": context,
    }  # fmt: skip
    random_model(folder, "llama", settings, seed, noise)


def even(folder: Path) -> None:
    """Write `even` and `even-draft`, the first of its layers, whose drafts win about what they cost."""
    target, draft = folder / "even", folder / "even-draft"
    random_model(target, "llama", SMALL, seed=4)
    config, tensors = json.loads((target / "config.json").read_text()), load_file(target / "model.safetensors")
    last = {name for name in tensors if name.startswith(("model.layers.1.", "model.layers.2.", "model.layers.3."))}
    for name in last:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] *= FAINT
    _write(target, config, tensors, tensors)
    _write(draft, config | {"num_hidden_layers": 1}, tensors, tensors.keys() - last)


def _write(folder: Path, config: dict[str, object], tensors: dict[str, torch.Tensor], names: Collection[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensors[name] for name in names}, folder / "model.safetensors", metadata={"format": "pt"})
    _add_tokenizer(folder)


def _add_tokenizer(folder: Path) -> None:
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
    even(folder)
    experts = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 224, "norm_topk_prob": True}
    random_model(folder / "experts", "qwen3_moe", SMALL | experts, seed=5)
    delta: dict[str, Any] = {"linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 64}
    delta |= {"linear_value_head_dim": 64, "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
    random_model(folder / "delta", "qwen3_5_text", SMALL | delta, seed=6)


if __name__ == "__main__":
    main()
