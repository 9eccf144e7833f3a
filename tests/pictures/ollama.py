"""Whole models in one GGUF file as Ollama's converter writes them, for tests."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from measure.random_gguf import write
from specchat.engine.pictures.tower_families import CLIP_COLOURS
from specchat.engine.weights.checkpoint import Checkpoint
from tests.pictures.towers import COLOURS, FAMILIES, converted, towers_tensors, vision

HEADS = [(f"self_attn.{one}_proj", f"attn_{one}") for one in "qkv"]
GATED = [(f"mlp.{one}_proj", f"ffn_{one}") for one in ("gate", "up", "down")]
NAMES: dict[str, list[tuple[str, str]]] = {
    "gemma3": [
        *[("vision_tower.embeddings", "v"), ("vision_tower", "v"), ("encoder.layers", "blk"), *HEADS],
        *[("self_attn.out_proj", "attn_output"), ("projection_weight", "projection.weight")],
        ("multi_modal_projector", "mm"),
    ],
    "mistral3": [
        *[("vision_tower", "v"), ("transformer.layers", "blk"), ("ln_pre", "encoder_norm")],
        *[(name.replace("self_attn", "attention"), ollamas) for name, ollamas in HEADS],
        *[(name.replace("mlp", "feed_forward"), ollamas) for name, ollamas in GATED],
        *[("attention.o_proj", "attn_output"), ("attention_norm", "attn_norm"), ("multi_modal_projector", "mm")],
    ],
    "qwen2_5_vl": [
        *[("visual", "v"), ("blocks", "blk"), ("attn.proj", "attn_out"), ("norm1", "ln1"), ("norm2", "ln2")],
        *GATED,
    ],
    "qwen3_vl": [
        *[("visual", "v"), ("patch_embed.proj", "patch_embed"), ("blocks", "blk"), ("attn.proj", "attn_out")],
        ("deepstack_merger_list", "deepstack_merger"),
    ],
}
"""Parts of names, replaced one after another."""
NAMES |= {"gemma4": [], "qwen3_5": NAMES["qwen3_vl"]}
ARCHITECTURES = {"mistral3": "mistral3", "qwen2_5_vl": "qwen25vl"}
MORE: dict[str, dict[str, Any]] = {
    "gemma3": {
        "rope.local.freq_base": 2e4,
        "vision.projector.scale_factor": 3,
        "vision.attention.layer_norm_epsilon": 1e-6,
    },
    "gemma4": {"vision.projector.scale_factor": 3, "vision.image_max_pixels": 16 * 12 * 12},
    "mistral3": {"spatial_merge_size": 2},
    "qwen2_5_vl": {"vision.fullatt_block_indexes": [1], "vision.window_size": 28},
    "qwen3_vl": {"vision.deepstack_visual_indexes": [0, 2]},
    "qwen3_5": {},
}
LEFT_OUT = {
    "gemma3": (
        *("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.freq_base_swa"),
        *("rope.scaling.type", "rope.scaling.factor"),
    ),
    "qwen2_5_vl": ("rope.dimension_sections",),
    "qwen3_vl": ("rope.dimension_sections",),
}
"""Keys of llama.cpp's that it does not write."""


def whole(folder: Path, file: Path) -> None:
    """Write a file with the text and the tower of a folder, named by its kind."""
    kind, opened, of = folder.name, Checkpoint.open(folder), vision(folder)

    def change(writer: Any) -> None:
        keys = writer.kv_data[0]
        sections = keys.get(f"{writer.arch}.rope.dimension_sections")
        for key in LEFT_OUT.get(kind, ()):
            keys.pop(f"{writer.arch}.{key}", None)
        if kind == "qwen2_5_vl":
            writer.add_array(f"{writer.arch}.rope.mrope_section", sections.value[:3])
        if kind == "gemma3":  # whose vocabulary may lack it
            tokens = keys["tokenizer.ggml.tokens"]
            tokens.value = ["<pad>" if one == "<image_soft_token>" else one for one in tokens.value]
        if kind == "mistral3":
            keys["tokenizer.ggml.pre"].value = "default"
        found = {
            "vision.block_count": of.get("depth") or of["num_hidden_layers"],
            "vision.embedding_length": of["hidden_size"],
            "vision.attention.head_count": of.get("num_heads") or of["num_attention_heads"],
            "vision.patch_size": of["patch_size"],
            "vision.image_size": of.get("image_size", 0),
            "vision.shortest_edge": 14 * 14 * 4,
            "vision.longest_edge": 56 * 56,
            **{f"vision.{name}": listed for name, listed in COLOURS.get(kind, CLIP_COLOURS).items()},
            **MORE[kind],
        }
        for key, value in found.items():
            add = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}[type(value)]
            add(f"{writer.arch}.{key}", value)
        for name, tensor in _converted(kind, folder):
            writer.add_tensor(name, tensor.contiguous().numpy())

    text = replace(opened, settings=opened.settings["text_config"])
    write(text, file, "f32", tokenizer=True, arch=ARCHITECTURES.get(kind, ""), change=change)


def _converted(kind: str, folder: Path) -> Iterator[tuple[str, Tensor]]:
    if kind == "gemma4":
        yield from converted(kind, folder)
        return
    for name, tensor in towers_tensors(folder).items():
        for theirs, ollamas in NAMES[kind]:
            name = name.replace(theirs, ollamas)
        if "attn.qkv" in name:
            for part, one in zip("qkv", tensor.chunk(3), strict=True):
                yield name.replace("attn.qkv", f"attn_{part}"), one
        elif "patch_embed.proj" in name:
            for time in (0, 1):
                yield name.replace("patch_embed.proj", f"patch_embd_{time}"), tensor[:, :, time]
        else:
            yield name, tensor + 1 if "soft_emb" in name else tensor.flatten(0, 1) if tensor.dim() == 5 else tensor


KINDS = [kind for kind in FAMILIES if kind in NAMES]
