"""How the towers of each family are stored in GGUF files. A further family is an entry of `FAMILIES`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specchat.engine.pictures.stored_tower import StoredTower

Settings = dict[str, Any]
Tensors = dict[str, Tensor]
CLIP_COLOURS = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF_COLOURS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
PATCHES = "v.patch_embd.weight"


@dataclass(frozen=True)
class TowerFamily:
    """A family's towers in GGUF files.

    Attributes:
        mark: the token of pictures.
        parts: beginnings of names in transformers' model, by those in a file before the number of a layer.
        names: names in transformers' model by those in a file, without their last part, or with it where that differs;
            in layers of what follows a number; empty: it is left out.
        keys: of the file, by transformers' names of the tower's settings.
        vision: its further settings.
        processor: settings of transformers' processor.
        whole: further settings of the whole model.
        arranged: the file's tensors with the values that transformers has.
    """

    mark: str
    parts: Mapping[str, str]
    names: Mapping[str, str]
    keys: Mapping[str, str]
    vision: Callable[[StoredTower], Settings]
    processor: Callable[[StoredTower], Settings]
    whole: Callable[[StoredTower], Settings] = lambda _: {}
    arranged: Callable[[StoredTower, Tensors], Tensors] = lambda _, tensors: tensors


def _gemma3(tower: StoredTower) -> Settings:
    eps = tower.number("attention.layer_norm_epsilon")
    return {"model_type": "siglip_vision_model", "layer_norm_eps": eps, "vision_use_head": False}


def _gemma3_whole(tower: StoredTower) -> Settings:
    side = tower.number("image_size") // tower.number("patch_size") // tower.number("projector.scale_factor", 4)
    return {"mm_tokens_per_image": side**2}


def _gemma3_pixels(tower: StoredTower) -> Settings:
    size = tower.number("image_size")
    return HALF_COLOURS | {"size": {"height": size, "width": size}}


def _gemma3_tensors(_: StoredTower, tensors: Tensors) -> Tensors:
    # A file has the factor itself.
    return {name: one - 1 if "soft_emb_norm" in name else one for name, one in tensors.items()}


def _pixtral(tower: StoredTower) -> Settings:
    act = "silu" if tower.within or tower.uses("silu") else "gelu"
    return {"model_type": "pixtral", "hidden_act": act}


def _pixtral_whole(tower: StoredTower) -> Settings:
    merge, biased = tower.number("spatial_merge_size", 2), "mm.1.bias" in tower.names
    return {"spatial_merge_size": merge, "multimodal_projector_bias": biased}


def _pixtral_pixels(tower: StoredTower) -> Settings:
    patch = tower.number("patch_size")
    sizes = {"size": {"longest_edge": tower.number("image_size")}, "patch_size": {"height": patch, "width": patch}}
    return CLIP_COLOURS | sizes


def _pixtral_tensors(tower: StoredTower, tensors: Tensors) -> Tensors:
    """Heads that rotate halves, of llama.cpp's that rotate pairs of neighbours; Ollama leaves them as they are."""
    turned = () if tower.within else (".attn_q.", ".attn_k.")
    for name in [name for name in tensors if any(part in name for part in turned)]:
        heads: Tensor = tensors[name].unflatten(0, (tower.number("attention.head_count"), -1, 2))
        tensors[name] = heads.transpose(1, 2).flatten(0, 2)
    return tensors


def _gemma4(tower: StoredTower) -> Settings:
    (head,), (keys, _) = tower.shape("v.blk.0.attn_q_norm.weight"), tower.shape("v.blk.0.attn_k.weight")
    return {
        "head_dim": head,
        "num_key_value_heads": keys // head,
        "rms_norm_eps": tower.number("attention.layer_norm_epsilon", 1e-6),
        "pooling_kernel_size": tower.number("projector.scale_factor", 3),
        "position_embedding_size": tower.shape("v.position_embd.weight")[1],
        "standardize": "v.std_bias" in tower.names,
        "use_clipped_linears": "v.blk.0.attn_q.input_min" in tower.names,
    }


def _gemma4_pixels(tower: StoredTower) -> Settings:
    patch, pooled = tower.number("patch_size"), tower.number("projector.scale_factor", 3)
    cell = (patch * pooled) ** 2
    most = tower.number("image_max_pixels", 280 * cell) // cell
    return {"patch_size": patch, "pooling_kernel_size": pooled, "max_soft_tokens": most}


def _gemma4_tensors(_: StoredTower, tensors: Tensors) -> Tensors:
    """Patches with the colours of a pixel together, and bounds of products as numbers."""
    tensors[PATCHES] = tensors[PATCHES].permute(0, 2, 3, 1).flatten(1)
    return {name: one.squeeze() if name.endswith(("_min", "_max")) else one for name, one in tensors.items()}


def _qwen2(tower: StoredTower) -> Settings:
    width, out = tower.number("embedding_length"), tower.shape("mm.2.weight")[0]
    return _merge(tower, "spatial_merge_size") | {"mlp_ratio": tower.mlp_width // width, "hidden_size": out}


def _qwen2_5(tower: StoredTower) -> Settings:
    every = tower.number("n_wa_pattern", 8)
    whole = tower.entries("fullatt_block_indexes") or range(every - 1, tower.number("block_count"), every)
    return _into_text(tower) | {"fullatt_block_indexes": [*whole], "window_size": tower.number("window_size", 112)}


def _qwen3(tower: StoredTower) -> Settings:
    deep = tower.entries("deepstack_visual_indexes") or tower.numbers("v.deepstack")
    positions = tower.shape("v.position_embd.weight")[0]
    return _into_text(tower) | {"deepstack_visual_indexes": deep, "num_position_embeddings": positions}


def _into_text(tower: StoredTower) -> Settings:
    return _merge(tower, "spatial_merge_size") | {"out_hidden_size": tower.shape("mm.2.weight")[0]}


def _merge(tower: StoredTower, name: str) -> Settings:
    return {name: tower.number("spatial_merge_size", 2), "temporal_patch_size": 2}


def _qwen_pixels(least: int, most: int, colours: Settings) -> Callable[[StoredTower], Settings]:
    """Settings of a processor, with the pixels of a picture where a file leaves them out."""

    def processor(tower: StoredTower) -> Settings:
        fewest = tower.number("image_min_pixels", tower.number("shortest_edge", least))
        greatest = tower.number("image_max_pixels", tower.number("longest_edge", most))
        size = {"shortest_edge": fewest, "longest_edge": greatest}
        return colours | _merge(tower, "merge_size") | {"size": size, "patch_size": tower.number("patch_size")}

    return processor


def _qwen_tensors(tower: StoredTower, tensors: Tensors) -> Tensors:
    """Patches of both times in one tensor, and queries, keys and values in one."""
    patches, second = tensors[PATCHES], tensors.pop(f"{PATCHES}.1", None)
    if second is not None:
        tensors[PATCHES] = torch.stack([patches, second], 2)
    else:  # Ollama's, with outputs and colours in one dimension
        tensors[PATCHES] = patches.unflatten(0, (tower.number("embedding_length"), -1))
    for name in [name for name in tensors if ".attn_q." in name]:
        parts = [tensors.pop(name.replace(".attn_q.", f".attn_{part}.")) for part in "qkv"]
        tensors[name.replace(".attn_q.", ".attn_qkv.")] = torch.cat(parts)
    return tensors


VIT = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
}
QWEN_VIT = {
    "patch_size": "patch_size",
    "hidden_size": "embedding_length",
    "depth": "block_count",
    "num_heads": "attention.head_count",
}
HEADS = {f"attn_{one}": f"self_attn.{one}_proj" for one in "qkv"}
GATED = {f"ffn_{one}": f"mlp.{one}_proj" for one in ("gate", "up", "down")}
GEMMA_3 = TowerFamily(
    "<image_soft_token>",
    {"v.blk": "vision_tower.encoder.layers"},
    {
        "v.patch_embd": "vision_tower.embeddings.patch_embedding",
        "v.position_embd": "vision_tower.embeddings.position_embedding",
        "v.post_ln": "vision_tower.post_layernorm",
        "mm.input_projection.weight": "multi_modal_projector.mm_input_projection_weight",
        "mm.soft_emb_norm": "multi_modal_projector.mm_soft_emb_norm",
        "ln1": "layer_norm1",
        "ln2": "layer_norm2",
        **HEADS,
        "attn_out": "self_attn.out_proj",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
    },
    VIT,
    _gemma3,
    _gemma3_pixels,
    _gemma3_whole,
    _gemma3_tensors,
)
GEMMA_4 = TowerFamily(
    "<|image|>",
    {"v.blk": "vision_tower.encoder.layers"},
    {
        "v.patch_embd": "vision_tower.patch_embedder.input_proj",
        "v.position_embd.weight": "vision_tower.patch_embedder.position_embedding_table",
        "v.std_bias": "vision_tower.std_bias",
        "v.std_scale": "vision_tower.std_scale",
        "mm.input_projection": "embed_vision.embedding_projection",
        "ln1": "input_layernorm",
        "ln2": "pre_feedforward_layernorm",
        "attn_post_norm": "post_attention_layernorm",
        "ffn_post_norm": "post_feedforward_layernorm",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        **(clipped := HEADS | GATED | {"attn_out": "self_attn.o_proj"}),
        **{f"{name}.weight": f"{theirs}.linear.weight" for name, theirs in clipped.items()},
    },
    {key: name for key, name in VIT.items() if key != "image_size"},
    _gemma4,
    _gemma4_pixels,
    lambda _: {"audio_config": None},
    _gemma4_tensors,
)
PIXTRAL = TowerFamily(
    "[IMG]",
    {"v.blk": "vision_tower.transformer.layers"},
    {
        "v.patch_embd": "vision_tower.patch_conv",
        "v.pre_ln": "vision_tower.ln_pre",
        "mm.input_norm": "multi_modal_projector.norm",
        "mm.patch_merger": "multi_modal_projector.patch_merger.merging_layer",
        "mm.1": "multi_modal_projector.linear_1",
        "mm.2": "multi_modal_projector.linear_2",
        "ln1": "attention_norm",
        "ln2": "ffn_norm",
        **{name: theirs.replace("self_attn", "attention") for name, theirs in HEADS.items()},
        "attn_out": "attention.o_proj",
        **{name: theirs.replace("mlp", "feed_forward") for name, theirs in GATED.items()},
    },
    VIT,
    _pixtral,
    _pixtral_pixels,
    _pixtral_whole,
    _pixtral_tensors,
)
QWEN_2_5 = TowerFamily(
    "<|image_pad|>",
    {"v.blk": "visual.blocks"},
    {
        "v.patch_embd": "visual.patch_embed.proj",
        "v.position_embd.weight": "",  # of older converters, in whose place rotations are
        "v.post_ln": "visual.merger.ln_q",
        "mm.0": "visual.merger.mlp.0",
        "mm.2": "visual.merger.mlp.2",
        "ln1": "norm1",
        "ln2": "norm2",
        "attn_qkv": "attn.qkv",
        "attn_out": "attn.proj",
        **GATED,
    },
    QWEN_VIT,
    _qwen2_5,
    _qwen_pixels(56**2, 3584**2, CLIP_COLOURS),
    arranged=_qwen_tensors,
)
QWEN_2 = replace(
    QWEN_2_5,
    names={**QWEN_2_5.names, "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    keys={"embed_dim" if key == "hidden_size" else key: name for key, name in QWEN_VIT.items()},
    vision=_qwen2,
)
QWEN_3 = replace(
    QWEN_2_5,
    parts={"v.blk": "visual.blocks", "v.deepstack": "visual.deepstack_merger_list"},
    names={
        **QWEN_2_5.names,
        "v.position_embd.weight": "visual.pos_embed.weight",
        "v.post_ln": "visual.merger.norm",
        "mm.0": "visual.merger.linear_fc1",
        "mm.2": "visual.merger.linear_fc2",
        "fc1": "linear_fc1",
        "fc2": "linear_fc2",
        "ffn_up": "mlp.linear_fc1",
        "ffn_down": "mlp.linear_fc2",
    },
    vision=_qwen3,
    processor=_qwen_pixels(256**2, 4096**2, HALF_COLOURS),
)
FAMILIES = {
    "gemma3": GEMMA_3,
    "gemma4": GEMMA_4,
    "mistral3": PIXTRAL,
    "qwen2_vl": QWEN_2,
    "qwen2_5_vl": QWEN_2_5,
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), QWEN_3),
}
"""By the model_type of the whole."""
