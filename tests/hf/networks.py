"""Tiny random networks of many architectures, built from their configurations alone."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.engine.tiny import TEMPLATE, VOCAB, tokenizer

WINDOW = 16
# With a tied head a random network writes one token for ever.
NO_ENDS: dict[str, Any] = {
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
PLAIN: dict[str, Any] = NO_ENDS | {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
HEADS = PLAIN | {"head_dim": 12}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SLIDING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
STATES = NO_ENDS | {"vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 2}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gemma2": HEADS | SLIDING,
    "gemma3_text": HEADS | SLIDING,
    "phi": PLAIN,
    "phi3": PLAIN | {"sliding_window": WINDOW},
    "mixtral": PLAIN | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW},
    "qwen2_moe": PLAIN | EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3_moe": HEADS | EXPERTS,
    "qwen3_next": HEADS | EXPERTS | LINEAR | {"shared_expert_intermediate_size": 32},
    "qwen3_5_text": HEADS | LINEAR,
    "gpt_oss": HEADS | SLIDING | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo": PLAIN,
    "olmo2": PLAIN,
    "falcon": STATES | {"num_attention_heads": 4, "alibi": False},
    "gpt2": NO_ENDS | {"vocab_size": VOCAB, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 256},
    "gpt_neox": PLAIN,
    "granite": PLAIN,
    "stablelm": PLAIN | {"hidden_size": 64},
    "starcoder2": PLAIN | {"sliding_window": WINDOW},
    "lfm2": PLAIN | {"layer_types": ["conv", "full_attention"]},
    "mamba2": STATES | {"state_size": 8, "num_heads": 8, "head_dim": 12, "expand": 2, "n_groups": 1},
    "mamba": STATES | {"state_size": 8},
    "jamba": PLAIN
    | {"num_experts": 2, "mamba_d_state": 8, "mamba_dt_rank": 8, "attn_layer_period": 2, "attn_layer_offset": 1},
    "rwkv": STATES | {"attention_hidden_size": 48, "context_length": 256},
    "recurrent_gemma": HEADS
    | {"attention_window_size": WINDOW, "lru_width": 48, "block_types": ["recurrent", "attention"]},
    "minimax": HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2},
}
"""Beside the shapes, what a configuration needs to have all of its kinds of layers."""
ONLY_PLAIN = ("mamba", "jamba", "rwkv", "recurrent_gemma", "minimax")
"""Those that go on by one token a pass only, or keep what cannot be taken back."""


def missing(kind: str) -> str:
    """Why the installed transformers cannot build it; "" where it can."""
    return "" if kind in CONFIG_MAPPING else f"the installed transformers has no {kind}"


def network(kind: str, seed: int = 0, **changes: Any) -> Any:
    """A random network in float32, its logits lively."""
    config = AutoConfig.for_model(kind, **(ARCHITECTURES.get(kind, PLAIN) | changes))
    torch.manual_seed(seed)
    maker = AutoModelForCausalLM if kind != "qwen2_vl" else AutoModelForImageTextToText
    made = maker.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in made.parameters():
            if weights.dim() == 2:
                weights.copy_(torch.randn(weights.shape, generator=generator) * 1.4 / weights.shape[1] ** 0.5)
    return made


def perturbed(base: Any, amount: float = 0.04, seed: int = 1) -> Any:
    """A copy with noise on every matrix: a draft that often agrees."""
    made = copy.deepcopy(base)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in made.parameters():
            if weights.dim() > 1:
                weights += amount * weights.std() * torch.randn(weights.shape, generator=generator)
    return made


def saved(made: Any, folder: Path, **changes: Any) -> Path:
    """Write a checkpoint with tokenizer and template; `changes` go into config.json."""
    made.save_pretrained(folder)
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    if changes:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
    return folder
