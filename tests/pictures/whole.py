"""Small random models of pictures and text, with a tokenizer, a template and a processor's settings."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.gemma4 import image_processing_pil_gemma4

from specchat.engine.protocol.options import Picture
from tests.engine.tiny import GEMMA4, QWEN35, VOCAB, tokenizer

image_processing_pil_gemma4._SUPPORTED_SOFT_TOKENS = (16,)  # published sizes are too large for these models

END, MARK, BREAK, LAST = range(256, VOCAB)
SPECIAL = ["<|end|>", "<|image|>", "[IMG_BREAK]", "[IMG_END]"]
GEMMAS = {
    "gemma3": ["<|end|>", "<image_soft_token>", "<start_of_image>", "<end_of_image>"],
    "gemma4": ["<|end|>", "<|image|>", "<|image>", "<image|>"],
}
TEMPLATE = """{% for m in messages %}{{ m.role }}:
{%- if m.content is string %}{{ m.content }}
{%- else %}
{%- for part in m.content %}{% if part.type == "image" %}(<|image|>){% else %}{{ part.text }}{% endif %}{% endfor %}
{%- endif %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}assistant:{% endif %}"""
TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "eos_token_id": END,
    "bos_token_id": None,
    "pad_token_id": None,
}
PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "head_dim": 16,
    "image_size": 56,
    "patch_size": 7,
    "hidden_act": "silu",
}
QWEN = {
    "depth": 2,
    "hidden_size": 32,
    "embed_dim": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "fullatt_block_indexes": [1],
    "window_size": 28,
    "patch_size": 7,
    "mlp_ratio": 2,
}
MROPE = {"rope_scaling": {"type": "mrope", "mrope_section": [4, 2, 2]}, "rope_theta": 500.0}
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 24,
    "patch_size": 2,
    "vision_use_head": False,
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "query_pre_attn_scalar": 16,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
GEMMA4S = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "patch_size": 4,
    "position_embedding_size": 64,
    "standardize": True,
    "use_clipped_linears": True,
}
INTERLEAVED = QWEN35["rope_parameters"] | {"mrope_section": [3, 3, 2], "mrope_interleaved": True}
KINDS: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {
    "mistral3": (Mistral3Config, Mistral3ForConditionalGeneration, {"model_type": "mistral"}, PIXTRAL),
    "qwen2_vl": (Qwen2VLConfig, Qwen2VLForConditionalGeneration, MROPE, QWEN | {"hidden_size": 64}),
    "qwen2_5_vl": (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, MROPE, QWEN),
    "qwen3_vl": (
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        {"rope_scaling": {"rope_type": "default", "mrope_section": [3, 3, 2], "mrope_interleaved": True}},
        QWEN | {"depth": 3, "deepstack_visual_indexes": [0, 2]},
    ),
    "gemma3": (Gemma3Config, Gemma3ForConditionalGeneration, GEMMA3, SIGLIP),
    "gemma4": (
        Gemma4Config,
        Gemma4ForConditionalGeneration,
        GEMMA4 | {"use_bidirectional_attention": "vision", "pad_token_id": 5},
        GEMMA4S,
    ),
    "qwen3_5": (
        Qwen3_5Config,
        Qwen3_5ForConditionalGeneration,
        {key: one for key, one in QWEN35.items() if key != "model_type"} | {"rope_parameters": INTERLEAVED},
        QWEN,
    ),
}
"""Configuration, model, and settings of text and tower."""
OUTER = {"gemma3": {"mm_tokens_per_image": 16}}
PROCESSORS: dict[str, dict[str, Any]] = {
    "gemma3": {"size": {"height": 24, "width": 24}},
    "gemma4": {"patch_size": 4, "max_soft_tokens": 16},
    "mistral3": {"size": {"longest_edge": 56}, "patch_size": {"height": 7, "width": 7}},
    "qwen": {"size": {"shortest_edge": 14 * 14 * 4, "longest_edge": 56 * 56}, "patch_size": 7},
}


def saved(kind: str, folder: Path, **changes: Any) -> Path:
    """A model of `kind` with random weights, norms and biases, as transformers saves it, with all other files.

    `changes` are those of its settings of text.
    """
    of_config, of_model, text, vision = KINDS[kind]
    config = of_config(
        text_config=TEXT | text | changes,
        vision_config=vision,
        tie_word_embeddings=False,
        image_token_id=MARK,
        video_token_id=1,
        **OUTER.get(kind, {}),
    )
    torch.manual_seed(4)
    made = of_model(config)
    for name, weight in made.state_dict().items():
        if name.endswith(("_min", "_max")):
            weight.fill_(-0.9 if name.endswith("_min") else 0.8)
        elif "norm" in name or "bias" in name or weight.dim() == 1:
            weight.data.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.2)
        else:
            weight.data.normal_(std=1.3 * weight.shape[-1] ** -0.5)
    made.save_pretrained(folder)
    tokenizer(GEMMAS.get(kind, SPECIAL)).save(str(folder / "tokenizer.json"))
    template = TEMPLATE.replace("<|image|>", "<start_of_image>") if kind == "gemma3" else TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": template}))
    processor = PROCESSORS.get(kind, PROCESSORS["qwen"])
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def picture(width: int = 50, height: int = 36, seed: int = 0) -> Picture:
    """A random picture, as a PNG file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(file := BytesIO(), "PNG")
    return Picture(file.getvalue())
