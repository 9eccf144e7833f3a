"""Whole models in GGUF files as llama.cpp's and Ollama's converters write them, for tests."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from measure.random_gguf import write
from specchat.engine.pictures.tower_families import CLIP_COLOURS, HALF_COLOURS
from specchat.engine.weights.checkpoint import Checkpoint
from tests.pictures.whole import GEMMA4S, GEMMAS, PIXTRAL, QWEN, SIGLIP, saved

SIXTH_FULL = [*["sliding_attention"] * 5, "full_attention"]
"""As files of Gemma 3 have it."""
PAD = ["<|end|>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"]
FAMILIES: dict[str, tuple[str, list[str], dict[str, Any], dict[str, Any]]] = {
    "gemma3": ("gemma3", GEMMAS["gemma3"], SIGLIP, {"num_hidden_layers": 6, "layer_types": SIXTH_FULL}),
    "gemma4": ("gemma4v", GEMMAS["gemma4"], GEMMA4S, {}),
    "mistral3": ("pixtral", ["<|end|>", "[IMG]", "[IMG_BREAK]", "[IMG_END]"], PIXTRAL, {"num_hidden_layers": 2}),
    "qwen2_vl": ("qwen2vl_merger", PAD, QWEN, {}),
    "qwen2_5_vl": ("qwen2.5vl_merger", PAD, QWEN, {}),
    "qwen3_vl": ("qwen3vl_merger", PAD, QWEN, {}),
    "qwen3_5": ("qwen3vl_merger", PAD, QWEN, {}),
}
"""The projector, special tokens, settings of the tower, and changed settings of the text."""
V, OF = gguf.Keys.ClipVision, gguf.MODEL_TENSOR
PIXELS = {V.IMAGE_MIN_PIXELS: 14 * 14 * 4, V.IMAGE_MAX_PIXELS: 56 * 56}
KEYS: dict[str, dict[str, Any]] = {
    "gemma3": {V.Projector.SCALE_FACTOR: 3},
    "gemma4": {V.Projector.SCALE_FACTOR: 3, V.IMAGE_MAX_PIXELS: 16 * 12 * 12},
    "mistral3": {V.SPATIAL_MERGE_SIZE: 2, V.USE_SILU: True},
    "qwen2_vl": PIXELS,
    "qwen2_5_vl": PIXELS | {V.N_WA_PATTERN: 2, V.WINDOW_SIZE: 28},
    "qwen3_vl": PIXELS | {V.SPATIAL_MERGE_SIZE: 2},
    "qwen3_5": PIXELS | {V.SPATIAL_MERGE_SIZE: 2},
}
"""Keys that a family has beside those of all, and those by which tiny models differ."""
COLOURS = {"gemma3": HALF_COLOURS, "gemma4": {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}}
"""As the folders' processors have them, of others CLIP's."""


ENDS = (".weight", ".bias", ".input_min", ".input_max", ".output_min", ".output_max")


def made(kind: str, folder: Path, **changes: Any) -> Path:
    """A model of a kind whose tokens, template and tower's float16 files can have; `changes` are those of its text."""
    _, special, _, text = FAMILIES[kind]
    saved(kind, folder, **text | changes)
    file = folder / "model.safetensors"
    rounded = {name: one.half().float() if "vis" in name else one for name, one in load_file(file).items()}
    save_file(rounded, file, metadata={"format": "pt"})
    # Files have merges, and name a way to split texts. No text has the byte 255.
    vocab = {c: i for i, c in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet())[:255], "th"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("t", "h")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(special)
    backend.save(str(folder / "tokenizer.json"))
    settings = folder / "tokenizer_config.json"
    if kind not in GEMMAS:
        settings.write_text(settings.read_text().replace("<|image|>", special[1]))
    return folder


def text(folder: Path, file: Path) -> None:
    """Write the text of a folder's model."""
    opened, deep = Checkpoint.open(folder), vision(folder).get("deepstack_visual_indexes")

    def change(writer: Any) -> None:
        if deep:
            writer.add_num_deepstack_layers(len(deep))

    text = replace(opened, settings=opened.settings["text_config"])
    write(text, file, "f32", tokenizer=True, change=change)


def vision(folder: Path) -> dict[str, Any]:
    """Settings of a folder's tower."""
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text())["vision_config"]
    return settings


def towers_tensors(folder: Path) -> dict[str, Tensor]:
    """Tensors of a folder's tower and projector, by their names in published checkpoints."""
    every = {name.removeprefix("model."): one for name, one in load_file(folder / "model.safetensors").items()}
    begins = ("vision_tower.", "multi_modal_projector.", "visual.", "embed_vision.")
    return {name: one for name, one in every.items() if name.startswith(begins)}


def written(folder: Path, file: Path, exchanged: bool = False, **changes: Any) -> Path:
    """A file with the tower of a folder, named by its kind, as llama.cpp's converter writes it.

    `changes` are those of its keys. Older converters exchanged the products of an MLP, and wrote positions of Qwen2-VL.
    """
    kind, writer = folder.name, gguf.GGUFWriter(file, "clip")
    name, _, of, _ = FAMILIES[kind]
    keys = {
        (V.PROJECTOR_TYPE if kind == "gemma4" else "clip.projector_type"): name,
        V.PROJECTION_DIM: 64,
        V.IMAGE_SIZE: of.get("image_size", 224),
        V.PATCH_SIZE: of["patch_size"],
        V.EMBEDDING_LENGTH: 32,
        V.FEED_FORWARD_LENGTH: 0 if kind == "qwen2_vl" else of["intermediate_size"],
        V.BLOCK_COUNT: vision(folder).get("depth", 2),
        V.Attention.HEAD_COUNT: 2,
        **KEYS[kind],
    }
    writer.add_type("mmproj")
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_clip_has_vision_encoder(True)
    colours = COLOURS.get(kind, CLIP_COLOURS)
    writer.add_vision_image_mean(colours["image_mean"])
    writer.add_vision_image_std(colours["image_std"])
    for key, value in (keys | changes).items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}[type(value)]
        add(key, value)
    if kind == "mistral3":  # a row of the text, which llama.cpp's towers write between those of a picture
        writer.add_tensor("v.token_embd.img_break", np.ones(64, np.float32))
    if exchanged and kind == "qwen2_vl":
        writer.add_tensor("v.position_embd.weight", np.zeros((10, 10), np.float32))
    for stored, tensor in converted(kind, folder):
        if exchanged and "ffn_" in stored:
            stored = stored.replace("ffn_up", "?").replace("ffn_down", "ffn_up").replace("?", "ffn_down")
        half = "blk" in stored and tensor.dim() > 1
        writer.add_tensor(stored, (tensor.half() if half else tensor.float()).contiguous().numpy())
    return _closed(writer, file)


def _closed(writer: Any, file: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def converted(kind: str, folder: Path) -> Iterator[tuple[str, Tensor]]:
    """llama.cpp's names and layouts, by the package's table of names and what its converter does before it."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 3)
    deep = vision(folder).get("deepstack_visual_indexes", [])
    for name, tensor in towers_tensors(folder).items():
        for published, part in _published(kind, name, tensor):
            stored = names.get_name(published, ENDS) or _by_hand(name, deep)
            assert stored, name
            yield stored + (".1" if published.endswith("weight.1") else ""), part


def _published(kind: str, name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The names that the package's table knows, and the converter's parts and rearrangements."""
    if kind == "gemma3":
        name = name.replace("vision_tower.", "vision_tower.vision_model.").replace("_weight", ".weight")
        yield name, tensor + 1 if "soft_emb_norm" in name else tensor
    elif kind == "gemma4":
        name = f"model.{name}".replace("model.vision_tower.encoder.", "vision_model.model.").replace(".linear.", ".")
        if "input_proj" in name:
            tensor = tensor.view(32, 4, 4, 3).permute(0, 3, 1, 2)
        yield name + ".weight" * name.endswith("table"), tensor if tensor.dim() else tensor.view(1)
    elif kind == "mistral3":
        rotated = "q_proj" in name or "k_proj" in name
        yield name, tensor.view(2, 2, -1, 32).swapaxes(1, 2).reshape(tensor.shape) if rotated else tensor
    elif "patch_embed" in name and "weight" in name:
        yield name, tensor[:, :, 0]
        yield f"{name}.1", tensor[:, :, 1]
    elif ".qkv." in name and kind in ("qwen2_vl", "qwen2_5_vl"):
        for part, one in zip("qkv", tensor.chunk(3), strict=True):
            yield name.replace("qkv", part), one
    else:
        yield name, tensor


def _by_hand(name: str, deep: list[int]) -> str:
    """Names that the converter makes itself; `deep` are layers after which rows are added."""
    if found := re.fullmatch(r"visual\.deepstack_merger_list\.(\d)\.(linear_)?(\w+)\.(\w+)", name):
        return f"v.deepstack.{deep[int(found[1])]}.{found[3]}.{found[4]}"
    renamed = {"merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2", "merger.norm": "v.post_ln"}
    stem, _, last = name.removeprefix("visual.").rpartition(".")
    return f"{renamed[stem]}.{last}" if stem in renamed else "v.patch_embd.weight" * ("patch_embed" in name)
