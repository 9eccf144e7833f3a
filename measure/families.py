"""Published models as a GPU has them, and sizes of those of families unlike Llama, as keys of config.json."""

from pathlib import Path
from typing import Any

from specchat.bench.published import LLAMA31_8B
from specchat.engine.formats.gguf import Gguf
from specchat.engine.formats.mxfp4 import Mxfp4
from specchat.engine.memory.need import Model
from specchat.engine.recipe import Attention, Gated
from specchat.engine.weights.config import ModelConfig, parse_config

SIZES: dict[str, dict[str, Any]] = {
    "Qwen3-Coder-30B-A3B": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    },
    "Qwen3.5-9B": {
        "model_type": "qwen3_5_text",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 32,
        "vocab_size": 248320,
        "tie_word_embeddings": False,
    },
    "Qwen3.8-27B": {
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
        "vocab_size": 248320,
        "tie_word_embeddings": False,
    },
    "Qwen3.6-35B-A3B": {
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "vocab_size": 248320,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": False,
    },
    "Gemma 4 31B": {
        "model_type": "gemma4_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 60,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 4,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "vocab_size": 262144,
        "sliding_window": 1024,
        "final_logit_softcapping": 30.0,
    },
    "Gemma 4 26B-A4B": {
        "model_type": "gemma4_text",
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "vocab_size": 262144,
        "sliding_window": 1024,
        "final_logit_softcapping": 30.0,
        "enable_moe_block": True,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 201088,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "attention_bias": True,
    },
    "Muse Glimmer 30B": {
        "model_type": "muse_glimmer_text",
        "hidden_size": 6656,
        "intermediate_size": 19968,
        "num_hidden_layers": 52,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "vocab_size": 202048,
        "sliding_window": 2048,
        "final_logit_softcapping": 20.0,
        "tie_word_embeddings": False,
    },
    "LFM2-1.2B": {
        "model_type": "lfm2",
        "hidden_size": 2048,
        "intermediate_size": 12288,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 65536,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    },
}
IN_MXFP4 = frozenset({"gpt-oss-20b"})
"""Models whose experts are published in MXFP4."""


def config(name: str) -> ModelConfig:
    """The model of that name."""
    return parse_config(Path(), SIZES[name] | {"max_position_embeddings": 131072, "rms_norm_eps": 1e-5})


LLAMA = Model(LLAMA31_8B, "cuda", "nf4")


def q4_k_m(config: ModelConfig) -> Gguf:
    """Types that llama.cpp gives a Llama in Q4_K_M: some layers have values and the last matrix of the MLP in Q6_K."""
    layers = config.recipe.layers
    types = dict.fromkeys(config.recipe.head.names, "Q6_K")
    for number, layer in enumerate(layers):
        far = number < len(layers) // 8 or number >= 7 * len(layers) // 8 or (number - len(layers) // 8) % 3 == 2
        types |= {name: "Q4_K" for one in layer.products for name in one.names}
        if far and isinstance(layer.mixer, Attention) and isinstance(layer.feed, Gated):
            types |= dict.fromkeys((*layer.feed.down.names, layer.mixer.qkv.names[-1]), "Q6_K")
    return Gguf(types)


LLAMA_GGUF = Model(LLAMA31_8B, "cuda", "gguf", stored=q4_k_m(LLAMA31_8B))


def family(name: str) -> Model:
    """A model as a pair has it: NF4, with experts in MXFP4 as stored beside 16 bits."""
    packed = name in IN_MXFP4
    return Model(config(name), "cuda", None if packed else "nf4", stored=Mxfp4() if packed else None)
