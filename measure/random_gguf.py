"""GGUF files of checkpoints of every family, as llama.cpp's converter writes them, for tests and for its own runs.

Names are those of the package gguf; metadata and layouts are written from what the converter does.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import gguf
import torch
from torch import Tensor

from measure.random_states import blocks, describe_delta, describe_selective
from measure.random_tensors import nextn, tensors
from specchat.engine.llama_cpp.export import FILE_TYPES, OUTER_MATRICES, Kind
from specchat.engine.llama_cpp.vocabulary import Vocabulary, describe
from specchat.engine.recipe import Attention, Experts, Gated, Recipe, Rope
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import Weights

ARCHITECTURES = {
    "mistral": "llama", "mixtral": "llama", "olmo3": "olmo2", "deepseek_v3": "deepseek2", "gemma3_text": "gemma3",
    "glm4_moe_lite": "deepseek2", "hunyuan_v1_dense": "hunyuan-dense", "gemma4_text": "gemma4",
    "deepseek_v2": "deepseek2",
    "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe", "qwen3_moe": "qwen3moe", "qwen2_moe": "qwen2moe",
    "qwen3_next": "qwen3next", "glm4_moe": "glm4moe", "ministral3": "mistral3", "gpt_oss": "gpt-oss",
    "granitemoehybrid": "granitehybrid", "granitemoeshared": "granitemoe",
    "qwen2_vl_text": "qwen2vl", "qwen2_5_vl_text": "qwen2vl", "qwen3_vl_text": "qwen3vl",
    "lfm2_moe": "lfm2moe", "minimax_m2": "minimax-m2", "muse_glimmer_text": "muse-glimmer",
}  # fmt: skip
"""llama.cpp's names of families, where they are others."""
LIKE = {"muse-glimmer": "gemma3", "qwen25vl": "qwen2vl"}
"""Architectures of the same names, of those that the package may not know."""
PATTERNED = ("gemma4", "olmo2", "exaone4", "muse-glimmer")
"""Architectures whose files list the layers with windows."""
WINDOWLESS = ("llama", "qwen2moe", "starcoder2")
DENSE = ("ssm_a", "ssm_ba", "ssm_beta", "ssm_conv1d", "ssm_d", "ssm_norm", "shortconv.conv", "ffn_gate_inp")
"""Parts of the names of matrices that stay in float32."""
RENAMED = {
    "e_score_correction_bias": "exp_probs_b.bias", "expert_bias": "exp_probs_b.bias", "dt_bias": "ssm_dt.bias",
    "A_log": "ssm_a", "sinks": "attn_sinks.weight", "layer_scalar": "layer_output_scale.weight",
    "router.norm.weight": "ffn_gate_inp.scale", "per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj.weight": "ffn_gate_up_exps.weight", "mixer.experts.up_proj.weight": "ffn_up_exps.weight",
    "mixer.experts.down_proj.weight": "ffn_down_exps.weight", "mamba.D": "ssm_d", "mixer.D": "ssm_d",
}  # fmt: skip
"""Ends of our names that the package does not know."""


Nextn = Literal["left out", "within", "alone"]
"""The layer for multi-token prediction: not written, after the others, or with tables of the model in their place."""


def write(
    checkpoint: Checkpoint,
    file: Path,
    kind: Kind,
    *,
    tokenizer: bool = False,
    predicts: Nextn = "left out",
    arch: str = "",
    change: Callable[[Any], None] = lambda _: None,
) -> None:
    """Write a checkpoint, by default without its tokenizer, the embeddings of q4_0 in q8_0.

    `arch` is another name of its architecture, as other converters have it; `change` is called with the writer at last.
    """
    recipe, family = checkpoint.config.recipe, checkpoint.config.family
    arch = arch or ARCHITECTURES.get(family, family)
    if recipe.mixtures and family == "nemotron_h":
        arch = "nemotron_h_moe"
    writer = gguf.GGUFWriter(file, arch)
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    if tokenizer:
        describe(writer, gguf, Vocabulary.of(checkpoint), checkpoint.config.vocab)
    else:
        writer.add_tokenizer_model("no_vocab")
    like = LIKE.get(arch, arch)
    names = gguf.get_tensor_name_map(
        next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == like), len(blocks(recipe, arch)) + 1
    )
    with Weights(checkpoint) as weights:
        found = tensors(recipe, weights, arch)
        _describe(writer, checkpoint, arch, found, predicts != "left out")
        if predicts == "alone":
            found = {name: one for name, one in found.items() if ".layers." not in name}
        if predicts != "left out":
            found |= nextn(checkpoint, weights, arch)
        for number, layer in enumerate(recipe.layers):
            if isinstance(layer.mixer, Attention) and layer.mixer.gated and arch == "muse-glimmer":
                found[f"blk.{number}.attn_gate.weight"] = found.pop(f"{layer.mixer.qkv.names[1]}.weight")
        for name, tensor in found.items():
            as_they_are = tensor.dim() < 3 and recipe.recurrent and recipe.recurrent[0].selective
            tensor = tensor if as_they_are else tensor.squeeze()
            _put(writer, _named(name, names), tensor if tensor.dim() else tensor.flatten(), kind)
        change(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    writer.close()


def _named(name: str, names: Any) -> str:
    parts = name.split(".")
    end = next((theirs for ours, theirs in RENAMED.items() if name.endswith(f".{ours}")), None)
    if end is not None:
        return f"blk.{parts[2]}.{end}"
    known = names.get_name(name, (".weight", ".bias"))
    if known is None and ".mlp." in name:  # layers without experts of families that have them
        return f"blk.{parts[2]}.ffn_{parts[4].removesuffix('_proj')}.{parts[5]}"
    return known or name


def _describe(writer: Any, checkpoint: Checkpoint, arch: str, found: dict[str, Tensor], predicts: bool) -> None:
    c, recipe, raw = checkpoint.config, checkpoint.config.recipe, checkpoint.settings
    writer.add_context_length(raw["max_position_embeddings"])
    writer.add_embedding_length(c.hidden)
    writer.add_block_count(len(blocks(recipe, arch)) + predicts)
    if predicts:
        writer.add_nextn_predict_layers(1)
    writer.add_vocab_size(c.vocab)
    (writer.add_layer_norm_eps if recipe.norm.centred else writer.add_layer_norm_rms_eps)(recipe.norm.eps)
    if recipe.attentions:
        _describe_attention(writer, recipe, raw)
    if recipe.mixtures:
        _describe_experts(writer, recipe.mixtures[0], raw)
    if recipe.recurrent and recipe.recurrent[0].selective:
        describe_selective(writer, recipe, raw)
    elif recipe.recurrent:
        describe_delta(writer, recipe)
    if recipe.cap:
        writer.add_final_logit_softcapping(recipe.cap)
    if arch.startswith("granite"):
        writer.add_embedding_scale(recipe.embed_scale)
        writer.add_residual_scale(recipe.layers[0].residual)
    if recipe.logit_scale != 1:
        writer.add_logit_scale(1 / recipe.logit_scale if arch.startswith("granite") else recipe.logit_scale)
    if "lfm2" in arch:
        writer.add_shortconv_l_cache(raw.get("conv_L_cache", 3))
    if curves := [layer.feed.curve for layer in recipe.layers if isinstance(layer.feed, Gated) and layer.feed.curve]:
        add = writer.add_xielu_alpha_p, writer.add_xielu_alpha_n, writer.add_xielu_beta, writer.add_xielu_eps
        for part, one in enumerate(add):
            one([found.pop(curve[part]).item() for curve in curves])


def _describe_attention(writer: Any, recipe: Recipe, raw: dict[str, Any]) -> None:
    arch = writer.arch
    of = next((mixer for mixer in recipe.attentions if not mixer.window), recipe.attentions[0])
    sliding = next((mixer for mixer in recipe.attentions if mixer.window), None)
    writer.add_head_count(of.heads)
    heads = [layer.mixer.kv_heads if isinstance(layer.mixer, Attention) else 0 for layer in recipe.layers]
    if not (recipe.recurrent and recipe.recurrent[0].selective):
        of_layers = recipe.recurrent or len({*heads}) == 1
        writer.add_head_count_kv(1 if of.latent else of.kv_heads if of_layers else heads)
        _describe_widths(writer, recipe, raw)
    if of.latent:
        _describe_latent(writer, of, raw)
    else:
        writer.add_key_length(of.head_dim)
        writer.add_value_length(of.head_dim)
    if sliding and arch not in WINDOWLESS:
        writer.add_sliding_window(sliding.window)
        if arch in PATTERNED:
            windows = [isinstance(one.mixer, Attention) and one.mixer.window > 0 for one in recipe.layers]
            writer.add_sliding_window_pattern(windows)
    rope = next((one.rope for one in (of, *recipe.attentions) if one.rope), None)
    if rope:
        _describe_rope(writer, rope)
    if sliding and rope and sliding.rope and sliding.rope.theta != rope.theta:
        writer.add_float32(f"{arch}.rope.freq_base_swa", sliding.rope.theta)
    if arch == "gemma4":
        _describe_gemma4(writer, recipe, sliding, raw)
    if of.score_cap:
        writer.add_attn_logit_softcapping(of.score_cap)
    if arch.startswith("granite"):
        writer.add_attention_scale(of.scale)
    if of.temper[0]:
        writer.add_float32(f"{arch}.attention.temperature_scale", of.temper[0])
        writer.add_rope_scaling_yarn_log_mul(raw["rope_parameters"]["mscale_all_dim"])


def _describe_widths(writer: Any, recipe: Recipe, raw: dict[str, Any]) -> None:
    shared = [layer.feed.shared for layer in recipe.layers if isinstance(layer.feed, Experts) and layer.feed.apart]
    plain = [layer.feed.width for layer in recipe.layers if isinstance(layer.feed, Gated)]
    plain = plain or [one.width for one in shared if one] or [raw["intermediate_size"]]
    writer.add_feed_forward_length(plain[0] if len({*plain}) == 1 else plain)


def _describe_latent(writer: Any, of: Attention, raw: dict[str, Any]) -> None:
    latent = of.latent
    assert latent is not None
    rank = latent.key_value.inputs
    writer.add_kv_lora_rank(rank)
    if latent.query:
        writer.add_q_lora_rank(latent.query.inputs)
    writer.add_key_length(rank + of.rotary_dim)
    writer.add_value_length(rank)
    writer.add_key_length_mla(of.head_dim)
    writer.add_value_length_mla(raw["v_head_dim"])
    if of.rope and (scale := of.rope.options.get("mscale_all_dim")):
        writer.add_rope_scaling_yarn_log_mul(0.1 * scale)


def _describe_rope(writer: Any, rope: Rope) -> None:
    writer.add_rope_freq_base(rope.theta)
    writer.add_rope_dimension_count(rope.width)
    if sections := rope.options.get("mrope_section"):
        writer.add_rope_dimension_sections([*sections, 0])
    if rope.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(rope.options["factor"]))
    elif rope.kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(float(rope.options["factor"]))
        writer.add_rope_scaling_orig_ctx_len(rope.options["original_max_position_embeddings"])
    elif rope.kind == "longrope":
        original = rope.options["original_max_position_embeddings"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(original)
        stretch = rope.options["max_position_embeddings"] / original
        factor = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
        writer.add_rope_scaling_attn_factors(factor)


def _describe_gemma4(writer: Any, recipe: Recipe, sliding: Attention | None, raw: dict[str, Any]) -> None:
    assert sliding is not None
    writer.add_key_length_swa(sliding.head_dim)
    writer.add_value_length_swa(sliding.head_dim)
    writer.add_shared_kv_layers(raw.get("num_kv_shared_layers") or 0)
    writer.add_embedding_length_per_layer_input(recipe.per_layer.norm.size if recipe.per_layer else 0)
    writer.add_rope_dimension_count_swa(sliding.head_dim)


def _describe_experts(writer: Any, of: Experts, raw: dict[str, Any]) -> None:
    writer.add_expert_count(of.count)
    writer.add_expert_used_count(of.top)
    if not writer.arch.startswith("granite"):
        writer.add_expert_feed_forward_length(of.each.width)
    if of.shared and (of.shared_gate or writer.arch == "granitemoe"):
        writer.add_expert_shared_feed_forward_length(of.shared.width)
    elif of.shared and not of.apart and writer.arch != "granitehybrid":
        writer.add_expert_shared_count(of.shared.width // of.each.width)
    if of.sigmoid:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if of.sigmoid or "n_routed_experts" in raw:
        writer.add_expert_weights_scale(of.factor)
        writer.add_expert_weights_norm(of.renormalised)
        writer.add_leading_dense_block_count(raw.get("first_k_dense_replace", raw.get("num_dense_layers", 0)))
    if of.groups != (1, 1):
        writer.add_expert_group_count(of.groups[0])
        writer.add_expert_group_used_count(of.groups[1])


def _put(writer: Any, name: str, tensor: Tensor, kind: Kind) -> None:
    if tensor.dim() == 1 or any(part in name for part in DENSE):
        kind = "f32"
    elif kind == "q4_0" and name in OUTER_MATRICES:
        kind = "q8_0"
    if kind in ("q4_0", "q8_0"):
        form = gguf.GGMLQuantizationType[kind.upper()]
        packed = gguf.quants.quantize(tensor.float().contiguous().numpy(), form)
        writer.add_tensor(name, packed, raw_dtype=form)
    else:
        stored = tensor.to(torch.float16 if kind == "f16" else torch.float32)
        writer.add_tensor(name, stored.contiguous().numpy())
