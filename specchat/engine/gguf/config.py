"""The metadata of a GGUF file in the keys of config.json, which families read.

Keys: llama.cpp's src/llama-arch.cpp; what files leave out: load_arch_hparams in its src/models/.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specchat.clean import one_line
from specchat.engine.errors import ForeignModel
from specchat.engine.gguf import hybrids, mixtures
from specchat.engine.gguf.files import GgufFiles
from specchat.engine.gguf.keys import FULL, SLIDING, ArchitectureKeys, Settings
from specchat.engine.gguf.ropes import rope_settings

ENDS = ("eos", "eot", "eom")
"""Tokens that end a text, a turn or a message."""


@dataclass(frozen=True)
class Architecture:
    """An architecture that one of our families computes.

    Attributes:
        keys: of config.json, by those of the file that differ from `COMMON`.
        more: further settings.
        paired: files hold rotated values in pairs of neighbours, where checkpoints hold them in halves.
        halves: a block of the file holds a mixer or an MLP, where a layer of the recipe has both.
    """

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[ArchitectureKeys], Settings] = lambda _: {}
    paired: bool = False
    halves: bool = False


COMMON = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "sliding_window": "attention.sliding_window",
}
NUMBERS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "final_logit_softcapping": "final_logit_softcapping",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "routed_scaling_factor": "expert_weights_scale",
}


def settings(files: GgufFiles) -> Settings:
    """The settings of a model as config.json has them.

    Raises:
        ForeignModel: the architecture is not one of ours, or has a feature that no family has.
        ModelError: a key is missing or of another kind.
    """
    known = ARCHITECTURES.get(files.architecture)
    if known is None:
        name = one_line(files.architecture or "none", 40)
        raise ForeignModel(files.path, f"specchat's decoder does not run architecture {name}")
    m = ArchitectureKeys(files)
    found: Settings = {
        "model_type": known.model_type,
        "num_hidden_layers": m.layers,
        "vocab_size": (files.shape("token_embd.weight") or (0,))[0],
        "head_dim": m.head_dim,
        "tie_word_embeddings": "output.weight" not in files.tensors,
        "attention_bias": m.has("attn_q.bias"),
        "mlp_bias": m.has("ffn_down.bias"),
        "eos_token_id": [
            one for end in ENDS if isinstance(one := files.values.get(f"tokenizer.ggml.{end}_token_id"), int)
        ],
        "rope_parameters": rope_settings(m, full_width=m.head_dim),
    }
    names = {**COMMON, **known.keys}
    found |= {key: value for key, name in names.items() if (value := m.integer(name)) is not None}
    found |= {key: real for key, name in NUMBERS.items() if (real := m.number(name)) is not None}
    found.setdefault("intermediate_size", found.get("moe_intermediate_size"))
    found |= known.more(m)
    return {key: value for key, value in found.items() if value is not None}


def _llama(m: ArchitectureKeys) -> Settings:
    return {"model_type": "mixtral" if m.integer("expert_count") else "llama", "sliding_window": None}


def _seed_oss(m: ArchitectureKeys) -> Settings:
    return {"attention_out_bias": m.has("attn_output.bias")}


def _scalar(m: ArchitectureKeys, layers: int) -> float:
    """Gemma's divisor of scores, squared; the largest models have another than the size of a head."""
    heads = m.integer("attention.head_count") or 1
    return (m.integer("embedding_length") or 0) / heads if m.layers == layers else m.head_dim


def _gemma2(m: ArchitectureKeys) -> Settings:
    return {"query_pre_attn_scalar": _scalar(m, 46), "layer_types": m.kinds(2), "sliding_window": m.window or 4096}


def _of_kinds(m: ArchitectureKeys, sliding: Settings, usual_theta: float = 10_000.0) -> Settings:
    """The rotation of full layers as the file says, and one without its scaling in the others."""
    theta = m.number("rope.freq_base_swa")
    return {
        FULL: rope_settings(m, full_width=m.head_dim, usual_theta=usual_theta),
        SLIDING: {"rope_type": "default", **sliding, **({"rope_theta": theta} if theta else {})},
    }


def _gemma3(m: ArchitectureKeys) -> Settings:
    kinds = m.kinds(6) if m.window else [FULL] * m.layers
    ropes = _of_kinds(m, {"rope_theta": 10_000.0}, 1e6)
    # Ollama's files leave out the scaling of all models that read pictures.
    if m.integer("vision.block_count") and (m.integer("context_length") or 0) >= 1 << 17:
        ropes[FULL] |= {"rope_type": "linear", "factor": m.number("rope.scaling.factor") or 8.0}
    return {"query_pre_attn_scalar": _scalar(m, 62), "layer_types": kinds, "rope_parameters": ropes}


def _gemma4(m: ArchitectureKeys) -> Settings:
    kinds = m.kinds(6)
    heads = m.each("attention.head_count_kv") or [m.integer("attention.head_count_kv") or 0] * m.layers
    widths = m.each("feed_forward_length") or [m.integer("feed_forward_length") or 0]
    full, sliding = m.head_dim, m.integer("attention.key_length_swa") or m.head_dim
    turned = m.files.floats("rope_freqs.weight")
    part = 2 * sum(1 for one in turned if one < 1e20) / full if turned else 1.0
    shared = m.integer("attention.shared_kv_layers") or 0
    full_layers = [layer for layer, kind in enumerate(kinds[: m.layers - shared]) if kind == FULL]
    theta = m.number("rope.freq_base") or 10_000.0
    return {
        "layer_types": kinds,
        "head_dim": sliding,
        "num_key_value_heads": heads[0],
        "per_layer_config": {
            str(layer): {"head_dim": full if kind == FULL else sliding, "num_key_value_heads": count}
            for layer, (kind, count) in enumerate(zip(kinds, heads, strict=True))
        },
        "attention_k_eq_v": any(not m.has("attn_v.weight", layer) for layer in full_layers),
        "intermediate_size": min(widths),
        "use_double_wide_mlp": min(widths) < max(widths),
        "num_kv_shared_layers": shared,
        "use_bidirectional_attention": None if m.integer("embedding_length_per_layer_input") else "vision",
        "hidden_size_per_layer_input": m.integer("embedding_length_per_layer_input") or 0,
        "vocab_size_per_layer_input": (m.files.shape("per_layer_token_embd.weight") or (0,))[0],
        "enable_moe_block": bool(m.integer("expert_count")),
        "rope_parameters": {
            FULL: {"rope_type": "proportional", "partial_rotary_factor": part, "rope_theta": theta},
            SLIDING: {"rope_type": "default", "rope_theta": m.number("rope.freq_base_swa") or theta},
        },
    }


def _olmo2(m: ArchitectureKeys) -> Settings:
    if not m.window:
        return {}
    theta = m.number("rope.freq_base") or 10_000.0
    ropes = _of_kinds(m, {"rope_theta": theta})
    return {"model_type": "olmo3", "layer_types": m.kinds(4), "rope_parameters": ropes}


def _windows(usual: int) -> Callable[[ArchitectureKeys], Settings]:
    """Families with a window in all layers but every so many."""
    return lambda m: {"layer_types": m.kinds(usual)} if m.window else {}


def _cohere2(m: ArchitectureKeys) -> Settings:
    return {"layer_types": m.kinds(4), "logit_scale": m.number("logit_scale")}


def _layer_norms(m: ArchitectureKeys) -> Settings:
    eps = m.number("attention.layer_norm_epsilon")
    return {"norm_eps": eps, "norm_epsilon": eps, "use_bias": m.has("ffn_down.bias")}


def _ministral3(m: ArchitectureKeys) -> Settings:
    rope = rope_settings(m, full_width=m.head_dim)
    if (scale := m.number("rope.scaling.yarn_log_multiplier")) is not None:
        rope |= dict.fromkeys(("mscale", "mscale_all_dim"), scale)
    return {"rope_parameters": rope | {"llama_4_scaling_beta": m.number("attention.temperature_scale")}}


def _muse(m: ArchitectureKeys) -> Settings:
    kinds, theta = m.kinds(4), m.number("rope.freq_base") or 10_000.0
    return {
        "layer_types": kinds,
        "layer_rope_theta": [theta if kind == SLIDING else 0.0 for kind in kinds],
        "qk_scale_factor": next(iter(m.files.floats("blk.0.attn_q_norm.weight")), 1.0),
        "output_multiplier": m.number("logit_scale"),
    }


def _phi3(m: ArchitectureKeys) -> Settings:
    return {"original_max_position_embeddings": m.integer("rope.scaling.original_context_length")}


ARCHITECTURES = {
    "apertus": Architecture("apertus", more=lambda _: {"hidden_act": "xielu"}),
    "cohere2": Architecture("cohere2", more=_cohere2),
    "deepseek2": Architecture("deepseek_v3", more=mixtures.deepseek2),
    "ernie4_5": Architecture("ernie4_5", more=lambda m: {"use_bias": m.has("ffn_down.bias")}),
    "exaone4": Architecture("exaone4", more=_windows(4)),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2", more=_gemma2),
    "gemma3": Architecture("gemma3_text", more=_gemma3),
    "gemma4": Architecture("gemma4_text", {"top_k_experts": "expert_used_count"}, _gemma4),
    "glm4": Architecture("glm4"),
    "glm4moe": Architecture("glm4_moe", more=mixtures.glm4_moe),
    "gpt-oss": Architecture("gpt_oss", more=mixtures.gpt_oss),
    "granite": Architecture("granite", more=mixtures.granite, paired=True),
    "granitehybrid": Architecture("granitemoehybrid", hybrids.GRANITE, hybrids.granite_hybrid, paired=True),
    "granitemoe": Architecture("granitemoe", more=mixtures.granite_moe, paired=True),
    "hunyuan-dense": Architecture("hunyuan_v1_dense"),
    "lfm2": Architecture("lfm2", hybrids.CONVOLUTIONS, hybrids.short_conv),
    "lfm2moe": Architecture("lfm2_moe", hybrids.CONVOLUTIONS, hybrids.short_conv),
    "llama": Architecture("llama", more=_llama, paired=True),
    "mamba2": Architecture("mamba2", hybrids.MAMBA2, hybrids.mamba2),
    "minimax-m2": Architecture("minimax_m2", {"rotary_dim": "rope.dimension_count"}, mixtures.expert_width),
    "mistral3": Architecture("ministral3", more=_ministral3, paired=True),
    "muse-glimmer": Architecture("muse_glimmer_text", more=_muse, paired=True),
    "nemotron": Architecture("nemotron", more=_layer_norms),
    "nemotron_h": Architecture("nemotron_h", hybrids.NEMOTRON, hybrids.nemotron_h, halves=True),
    "nemotron_h_moe": Architecture("nemotron_h", hybrids.NEMOTRON, hybrids.nemotron_h, halves=True),
    "olmo2": Architecture("olmo2", more=_olmo2),
    "olmoe": Architecture("olmoe", more=mixtures.expert_width),
    "phi3": Architecture("phi3", more=_phi3),
    "qwen2": Architecture("qwen2"),
    "qwen2moe": Architecture("qwen2_moe", more=mixtures.sparse(False)),
    "qwen25vl": Architecture("qwen2"),
    "qwen2vl": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "qwen35": Architecture("qwen3_5_text", hybrids.RECURRENT, hybrids.recurrent),
    "qwen35moe": Architecture("qwen3_5_moe_text", hybrids.RECURRENT, hybrids.recurrent),
    "qwen3moe": Architecture("qwen3_moe", more=mixtures.sparse(True)),
    "qwen3next": Architecture("qwen3_next", hybrids.RECURRENT, hybrids.recurrent),
    "qwen3vl": Architecture("qwen3"),
    "qwen3vlmoe": Architecture("qwen3_moe", more=mixtures.sparse(True)),
    "seed_oss": Architecture("seed_oss", more=_seed_oss),
    "smollm3": Architecture("smollm3", paired=True),
    "starcoder2": Architecture("starcoder2", more=_layer_norms),
}
"""llama.cpp's architectures, an entry each."""
