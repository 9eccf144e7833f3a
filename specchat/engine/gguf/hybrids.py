"""Settings of architectures with recurrent states or short convolutions, in the keys of config.json."""

from specchat.engine.errors import ModelError
from specchat.engine.gguf.keys import CONV, FULL, LINEAR, ArchitectureKeys, Settings
from specchat.engine.gguf.mixtures import granite, grouped, sparse

RECURRENT = {
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
GRANITE = {
    "mamba_d_conv": "ssm.conv_kernel",
    "mamba_d_state": "ssm.state_size",
    "mamba_n_groups": "ssm.group_count",
    "mamba_n_heads": "ssm.time_step_rank",
}
CONVOLUTIONS = {"conv_L_cache": "shortconv.l_cache", "num_dense_layers": "leading_dense_block_count"}
MAMBA2 = {
    "conv_kernel": "ssm.conv_kernel",
    "n_groups": "ssm.group_count",
    "state_size": "ssm.state_size",
    "num_heads": "ssm.time_step_rank",
}
NEMOTRON = {
    "conv_kernel": "ssm.conv_kernel",
    "n_groups": "ssm.group_count",
    "ssm_state_size": "ssm.state_size",
    "mamba_num_heads": "ssm.time_step_rank",
    "moe_shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "moe_latent_size": "moe_latent_size",
}


def recurrent(m: ArchitectureKeys) -> Settings:
    listed, every = m.each("attention.recurrent_layers"), m.integer("full_attention_interval") or 4
    kinds = listed or [(layer + 1) % every for layer in range(m.layers)]
    heads = m.integer("ssm.time_step_rank") or 1
    return sparse(True)(m) | {
        "layer_types": [LINEAR if one else FULL for one in kinds],
        "linear_value_head_dim": (m.integer("ssm.inner_size") or 0) // heads,
        "num_key_value_heads": _most(m, "attention.head_count_kv"),
        "by_head": False,
    }


def short_conv(m: ArchitectureKeys) -> Settings:
    heads = m.each("attention.head_count_kv")
    if not heads:
        raise ModelError(f"{m.files.path}: {m.files.architecture}.attention.head_count_kv is no list of layers.")
    return {
        "layer_types": [FULL if count else CONV for count in heads],
        "num_key_value_heads": max(heads),
        "norm_eps": m.number("attention.layer_norm_rms_epsilon"),
        "block_auto_adjust_ff_dim": False,
        "use_expert_bias": m.anywhere("exp_probs_b.bias"),
    }


def granite_hybrid(m: ArchitectureKeys) -> Settings:
    kinds = [LINEAR if m.has("ssm_in.weight", layer) else FULL for layer in range(m.layers)]
    width = m.integer("expert_shared_feed_forward_length") or m.integer("feed_forward_length")
    return granite(m) | {
        "layer_types": kinds,
        "position_embedding_type": "rope" if m.switch("rope.scaling.finetuned") else None,
        "num_key_value_heads": _most(m, "attention.head_count_kv"),
        "num_local_experts": m.integer("expert_count") or 0,
        "shared_intermediate_size": width,
        "fused_mlp": False,
        "attention_bias": m.anywhere("attn_q.bias"),
        "mamba_proj_bias": m.anywhere("ssm_in.bias"),
        "mamba_d_head": _state_width(m),
        "mamba_expand": (m.integer("ssm.inner_size") or 0) // (m.integer("embedding_length") or 1),
        "mamba_conv_bias": m.anywhere("ssm_conv1d.bias"),
    }


def _state_width(m: ArchitectureKeys) -> int:
    """Values of a value head of a recurrent layer."""
    return (m.integer("ssm.inner_size") or 0) // (m.integer("ssm.time_step_rank") or 1)


def _most(m: ArchitectureKeys, key: str) -> int | None:
    """The largest number of a list, whose others are of layers without such a part; else that of all layers."""
    return max(m.each(key), default=0) or m.integer(key)


def mamba2(m: ArchitectureKeys) -> Settings:
    return {
        "intermediate_size": None,
        "num_attention_heads": None,
        "head_dim": _state_width(m),
        "layer_norm_epsilon": m.number("attention.layer_norm_rms_epsilon"),
        "use_conv_bias": m.anywhere("ssm_conv1d.bias"),
        "use_bias": m.anywhere("ssm_in.bias"),
    }


def nemotron_h(m: ArchitectureKeys) -> Settings:
    """Kinds of blocks by their tensors; llama.cpp's converter writes them by widths and heads of zero."""
    by_tensor = {"ssm_in": LINEAR, "attn_q": FULL, "ffn_gate_inp": "moe"}
    kinds = [
        next((kind for name, kind in by_tensor.items() if m.has(f"{name}.weight", layer)), "mlp")
        for layer in range(m.layers)
    ]
    return {
        "layers_block_type": kinds,
        "layer_norm_epsilon": m.number("attention.layer_norm_rms_epsilon"),
        "intermediate_size": _most(m, "feed_forward_length"),
        "num_key_value_heads": _most(m, "attention.head_count_kv"),
        "mamba_head_dim": _state_width(m),
        "use_conv_bias": m.anywhere("ssm_conv1d.bias"),
        "use_bias": m.anywhere("ssm_in.bias"),
        "mlp_bias": m.anywhere("ffn_down.bias"),
        **grouped(m),
    }
