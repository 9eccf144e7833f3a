"""Settings of architectures with experts, in the keys of config.json."""

from collections.abc import Callable

from specchat.engine.gguf.keys import ArchitectureKeys, Settings, shortest
from specchat.engine.gguf.ropes import rope_settings


def granite(m: ArchitectureKeys) -> Settings:
    return {
        "attention_multiplier": m.number("attention.scale") or m.head_dim**-0.5,
        "embedding_multiplier": m.number("embedding_scale"),
        "residual_multiplier": m.number("residual_scale"),
        "logits_scaling": m.number("logit_scale"),
    }


def granite_moe(m: ArchitectureKeys) -> Settings:
    return granite(m) | {
        "shared_intermediate_size": m.integer("expert_shared_feed_forward_length") or 0,
        "fused_mlp": False,
    }


def glm4_moe(m: ArchitectureKeys) -> Settings:
    return grouped(m) | {"use_qk_norm": m.has("attn_q_norm.weight")}


def grouped(m: ArchitectureKeys) -> Settings:
    return {
        "n_routed_experts": m.integer("expert_count"),
        "n_group": m.integer("expert_group_count") or 1,
        "topk_group": m.integer("expert_group_used_count") or 1,
        "n_shared_experts": m.integer("expert_shared_count") or 0,
        "first_k_dense_replace": m.integer("leading_dense_block_count") or 0,
        "norm_topk_prob": m.switch("expert_weights_norm"),
    }


def deepseek2(m: ArchitectureKeys) -> Settings:
    first = m.integer("leading_dense_block_count") or 0
    by_softmax = first < m.layers and not m.has("exp_probs_b.bias", first)
    rotated = m.integer("rope.dimension_count") or 0
    rope = rope_settings(m, full_width=rotated)
    if (scale := m.number("rope.scaling.yarn_log_multiplier")) is not None:
        rope |= dict.fromkeys(("mscale", "mscale_all_dim"), shortest(scale / 0.1))
    key = m.integer("attention.key_length_mla") or m.integer("attention.key_length") or 0
    limited = (m.integer("expert_group_count") or 1) > 1
    return grouped(m) | {
        "model_type": "deepseek_v2" if by_softmax else "deepseek_v3",
        "topk_method": "group_limited_greedy" if limited else "greedy",
        "head_dim": None,
        "num_key_value_heads": m.integer("attention.head_count"),
        "q_lora_rank": m.integer("attention.q_lora_rank") or 0,
        "kv_lora_rank": m.integer("attention.kv_lora_rank"),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": key - rotated,
        "v_head_dim": m.integer("attention.value_length_mla") or m.integer("attention.value_length"),
        "rope_interleave": True,
        "rope_parameters": rope,
    }


def expert_width(m: ArchitectureKeys) -> Settings:
    """Families whose config.json has the width of an expert as that of an MLP."""
    return {"intermediate_size": m.integer("expert_feed_forward_length") or m.integer("feed_forward_length")}


def gpt_oss(m: ArchitectureKeys) -> Settings:
    # llama.cpp rounds the bounds of YaRN's ramp, which the model does not.
    rope = rope_settings(m, full_width=m.head_dim) | {"truncate": False}
    return expert_width(m) | {"layer_types": m.kinds(2), "rope_parameters": rope}


def sparse(renormalised: bool) -> Callable[[ArchitectureKeys], Settings]:
    """Families whose layers may lack experts."""

    def more(m: ArchitectureKeys) -> Settings:
        plain = [layer for layer in range(m.layers) if not m.has("ffn_gate_inp.weight", layer)]
        found = {"norm_topk_prob": renormalised, "mlp_only_layers": plain}
        # Ollama's files leave out the width of an expert.
        stack = next((shape for n in range(m.layers) if (shape := m.files.shape(f"blk.{n}.ffn_gate_exps.weight"))), ())
        return found | {"moe_intermediate_size": stack[1]} if len(stack) == 3 else found

    return more
