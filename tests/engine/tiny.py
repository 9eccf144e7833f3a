"""Small random models and tokenizers, written in the layouts of real checkpoints."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from specchat.engine.protocol.options import Limits
from specchat.engine.protocol.pair import ModelSource
from specchat.engine.recipe import Experts, Matrix, Norm
from specchat.engine.reply import measure
from specchat.engine.weights.config import parse_config
from tests.engine.layouts import stored

# Each loaded pair measures itself: in tests by fewer and shorter replies and fewer steps, that count all the same.
measure.REPLIES, measure.REPLY = 1, replace(measure.REPLY, limits=Limits(measure.REPLY_TOKENS + 4))
measure.STEPS, measure.WARM_UP, measure.DRAFTS, measure.ROUNDS = 6, 1, measure.MIN_DRAFTS, 3

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
VOCAB = 256 + len(SPECIAL)

FAMILY: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-gqa-untied": {"num_key_value_heads": 2, "tie_word_embeddings": False},
    "llama-bias": {"attention_bias": True, "mlp_bias": True},
    "llama-linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-llama3": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "llama-yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    "mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": None},
    "qwen2": {"model_type": "qwen2", "num_key_value_heads": 1},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": False},
    "seed_oss": {
        "model_type": "seed_oss",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "tie_word_embeddings": False,
        "attention_bias": True,
        "attention_out_bias": False,
        "mlp_bias": True,
    },
    "ernie4_5": {"model_type": "ernie4_5", "num_key_value_heads": 2, "head_dim": 32, "use_bias": True},
}
"""Families that differ from Llama in norms, biases or the order of stored rows alone."""
GEMMA4 = {
    "model_type": "gemma4_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "hidden_activation": "gelu_pytorch_tanh",
    "final_logit_softcapping": 3.0,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0},
    },
}
GPT_OSS_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 64,
}
QWEN35 = {
    "model_type": "qwen3_5_text",
    "num_key_value_heads": 2,
    "head_dim": 32,
    "tie_word_embeddings": False,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}
MORE: dict[str, dict[str, Any]] = {
    "smollm3": {
        "model_type": "smollm3",
        "num_key_value_heads": 2,
        "no_rope_layers": [1, 0, 1, 1],
        "bos_token_id": None,
        "pad_token_id": None,
    },
    "granite": {
        "model_type": "granite",
        "num_key_value_heads": 2,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.4,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.7,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "granitemoe": {
        "model_type": "granitemoe",
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.4,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.7,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
    },
    "granitemoeshared": {
        "model_type": "granitemoeshared",
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.4,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.7,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 80,
    },
    "granitemoehybrid": {
        "model_type": "granitemoehybrid",
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.4,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.7,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 80,
        "mamba_n_heads": 8,
        "mamba_n_groups": 2,
        "mamba_d_state": 32,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    },
    "nemotron_h": {
        "model_type": "nemotron_h",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": False,
        "hybrid_override_pattern": "M-M*EM-",
        "n_routed_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "moe_shared_expert_intermediate_size": 80,
        "routed_scaling_factor": 1.5,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 32,
        "time_step_min": 1e-9,
    },
    "mamba2": {
        "model_type": "mamba2",
        "tie_word_embeddings": False,
        "num_heads": 8,
        "head_dim": 16,
        "n_groups": 2,
        "state_size": 32,
        "pad_token_id": 0,
    },
    "olmo2": {"model_type": "olmo2", "num_key_value_heads": 2, "tie_word_embeddings": False},
    "olmo3": {
        "model_type": "olmo3",
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "exaone4": {
        "model_type": "exaone4",
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
    },
    "cohere2": {
        "model_type": "cohere2",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "sliding_window": 8,
        "logit_scale": 0.5,
        "bos_token_id": None,
        "pad_token_id": None,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3",
        "q_lora_rank": 48,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 2,
        "rope_interleave": True,
        "tie_word_embeddings": False,
    },
    "deepseek_v2": {
        "model_type": "deepseek_v2",
        "q_lora_rank": None,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "n_routed_experts": 12,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "n_group": 4,
        "topk_group": 2,
        "topk_method": "group_limited_greedy",
        "routed_scaling_factor": 1.5,
        "first_k_dense_replace": 1,
        "tie_word_embeddings": False,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "mscale": 0.7,
            "mscale_all_dim": 0.9,
            "original_max_position_embeddings": 64,
        },
    },
    "glm4_moe_lite": {
        "model_type": "glm4_moe_lite",
        "q_lora_rank": None,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32,
        "v_head_dim": 48,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "tie_word_embeddings": False,
    },
    "hunyuan": {
        "model_type": "hunyuan_v1_dense",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 20.0, "factor": 1.0},
    },
    "gemma2": {
        "model_type": "gemma2",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
        "sliding_window": 8,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "query_pre_attn_scalar": 20,
        "final_logit_softcapping": 3.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "rope_local_base_freq": 500.0,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "gemma4": GEMMA4,
    "gemma4_e": GEMMA4
    | {
        "attention_k_eq_v": False,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": VOCAB,
    },
    "gemma4_moe": GEMMA4
    | {
        "enable_moe_block": True,
        "num_experts": 5,
        "top_k_experts": 2,
        "moe_intermediate_size": 48,
    },
    "qwen3_5": QWEN35,
    "qwen3_5_moe": QWEN35
    | {
        "model_type": "qwen3_5_moe_text",
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,
        "mlp_only_layers": [2],
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
        "mlp_only_layers": [2],
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 3,
    },
    "phi3": {
        "model_type": "phi3",
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False,
        "sliding_window": 8,
        "original_max_position_embeddings": 256,
        "bos_token_id": None,
        "pad_token_id": None,
    },
    "phi3-whole": {"model_type": "phi3", "num_key_value_heads": 2, "bos_token_id": None, "pad_token_id": None},
    "qwen3_next": QWEN35
    | {
        "model_type": "qwen3_next",
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
        "mlp_only_layers": [2],
    },
    "glm4": {
        "model_type": "glm4",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
        "tie_word_embeddings": False,
        "pad_token_id": None,
    },
    "glm4_moe": {
        "model_type": "glm4_moe",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False,
        "attention_bias": True,
        "use_qk_norm": True,
        "first_k_dense_replace": 1,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 48,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 1.5,
    },
    "mixtral": {
        "model_type": "mixtral",
        "num_key_value_heads": 2,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
    },
    "ministral3": {
        "model_type": "ministral3",
        "head_dim": 16,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.4,
        },
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": False,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "attention_bias": True,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": GPT_OSS_ROPE,
    },
    "muse": {
        "model_type": "muse_glimmer_text",
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "tie_word_embeddings": False,
        "sliding_window": 8,
        "hidden_activation": "silu",
        "final_logit_softcapping": 3.0,
        "output_multiplier": 0.7,
        "qk_scale_factor": 1.9,
        "rms_norm_eps": 1e-3,
        "post_norm_eps": 1e-2,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "layer_rope_theta": [10000.0, 0, 10000.0, 0],
    },
    "lfm2": {
        "model_type": "lfm2",
        "num_key_value_heads": 2,
        "norm_eps": 1e-3,
        "block_multiple_of": 16,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
    "lfm2_moe": {
        "model_type": "lfm2_moe",
        "num_key_value_heads": 2,
        "norm_eps": 1e-3,
        "num_dense_layers": 1,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "routed_scaling_factor": 1.5,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    },
    "minimax_m2": {
        "model_type": "minimax_m2",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rotary_dim": 16,
        "tie_word_embeddings": False,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
    },
    "gemma": {
        "model_type": "gemma",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "gelu_pytorch_tanh",
        "attention_bias": True,
    },
    "olmoe": {
        "model_type": "olmoe",
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "num_experts": 5,
        "num_experts_per_tok": 2,
    },
    "apertus": {"model_type": "apertus", "num_key_value_heads": 2, "tie_word_embeddings": False, "hidden_act": "xielu"},
    "starcoder2": {
        "model_type": "starcoder2",
        "num_key_value_heads": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": 1e-3,
        "sliding_window": 8,
        "bos_token_id": None,
    },
    "nemotron": {
        "model_type": "nemotron",
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "relu2",
        "tie_word_embeddings": False,
        "norm_eps": 1e-3,
    },
    "mistral-window": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 8},
}
"""The others."""
FAMILIES = FAMILY | MORE
UNLIKE = (
    *("qwen3_next", "gemma4_e", "deepseek_v2", "nemotron_h", "gemma4_moe", "lfm2_moe", "granite", "cohere2"),
    *("deepseek_v3", "muse", "apertus", "olmo2", "hunyuan", "gemma2", "gemma3", "gpt_oss", "starcoder2", "mamba2"),
    *("qwen3_moe", "mistral-window"),
)
"""Those of MORE that have every feature of a recipe between them."""


def mostly(names: Iterable[str]) -> list[Any]:
    """Names of families as parameters; those of MORE beside UNLIKE are slow."""
    slow = MORE.keys() - set(UNLIKE)
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in names]


SIGNED = ("weight", "A_log", "dt_bias", "bias", "D", "alpha_n")
"""Ends of names of parts of recurrent layers and convolutions, and of xIELU's, which may be below zero."""


def config(**changes: Any) -> dict[str, Any]:
    """A config.json of a random model with 4 layers of 64, byte vocabulary, 256 positions."""
    return {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "eos_token_id": 256,
        "torch_dtype": "float32",
    } | changes


def tensors(c: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Random weights in our names, norms and biases too, large enough for lively logits."""
    g = torch.Generator().manual_seed(seed)
    recipe = parse_config(Path(), c).recipe
    out: dict[str, torch.Tensor] = {}

    def linear(matrix: Matrix) -> None:
        for name, outputs in matrix.parts:
            out[name + ".weight"] = torch.randn(outputs, matrix.inputs, generator=g) * 1.6 / matrix.inputs**0.5
            if matrix.bias:
                out[name + ".bias"] = torch.randn(outputs, generator=g) * 0.1

    def norm(one: Norm | None) -> None:
        if one is not None and one.name:
            out[one.name + ".weight"] = (not one.plus_one) + 0.1 * torch.randn(one.size, generator=g)
            if one.bias:
                out[one.name + ".bias"] = 0.1 * torch.randn(one.size, generator=g)

    out[recipe.embed.names[0] + ".weight"] = torch.randn(recipe.vocab, recipe.hidden, generator=g) * 0.5
    for layer in recipe.layers:
        for matrix in layer.products:
            linear(matrix)
        of_heads = [one for one in layer.mixer.norms if one is not None]
        apart = layer.feed.apart.all if isinstance(layer.feed, Experts) and layer.feed.apart else ()
        own = layer.input.norm if layer.input else None
        for one in (layer.pre_mixer, layer.pre_feed, *of_heads, layer.post_mixer, layer.post_feed, own, *apart):
            norm(one)
        for name, shape in layer.vectors.items():
            drawn = torch.randn if name.rpartition(".")[2] in SIGNED else torch.rand
            out[name] = (0.7 if drawn is torch.rand else 0.0) + 0.6 * drawn(shape, generator=g)
            if name.endswith(".eps"):  # a bound below zero
                out[name] = -out[name]
    if recipe.per_layer:
        linear(recipe.per_layer.table)
        linear(recipe.per_layer.project)
        norm(recipe.per_layer.norm)
    norm(recipe.norm)
    if not recipe.tied:
        linear(recipe.head)
    return out


def tokenizer(special: list[str] = SPECIAL) -> Tokenizer:
    """One token a byte (in byte order), then the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(special)
    return backend


FIRST_BYTE = 3
"""The first of the tokens for bytes of `byte_fallback`."""


def byte_fallback() -> Tokenizer:
    """The layout of Llama 2 and Mistral: "▁", "a" and "▁a", bytes for what they do not spell, special tokens."""
    vocab = {"▁": 0, "a": 1, "▁a": 2} | {f"<0x{i:02X}>": FIRST_BYTE + i for i in range(256)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("▁", "a")], byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(SPECIAL)
    return backend


def checkpoint(
    folder: Path, seed: int = 0, special: list[str] = SPECIAL, backend: Tokenizer | None = None, **changes: Any
) -> Path:
    """Write a complete checkpoint and return its folder; `backend` takes the place of `tokenizer(special)`."""
    backend = backend or tokenizer(special)
    if backend.get_vocab_size() > VOCAB:
        changes.setdefault("vocab_size", backend.get_vocab_size())
    folder.mkdir(parents=True, exist_ok=True)
    c = config(**changes)
    (folder / "config.json").write_text(json.dumps(c))
    save_file(stored(c, tensors(c, seed)), folder / "model.safetensors", metadata={"format": "pt"})
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    return folder


def perturbed(folder: Path, base: Path, amount: float, seed: int = 1) -> Path:
    """A copy of `base` with noise on every matrix: a draft that agrees more or less often."""
    from safetensors.torch import load_file

    folder.mkdir(parents=True, exist_ok=True)
    for file in base.iterdir():
        if file.suffix == ".json":
            (folder / file.name).write_bytes(file.read_bytes())
    g = torch.Generator().manual_seed(seed)
    weights = load_file(base / "model.safetensors")
    noisy = {
        k: v + amount * v.std() * torch.randn(v.shape, generator=g) if v.dim() > 1 else v for k, v in weights.items()
    }
    save_file(noisy, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def on_cpu(folder: Path) -> ModelSource:
    """A model that stays there on a machine with a GPU too."""
    return ModelSource(path=str(folder), device="cpu")
