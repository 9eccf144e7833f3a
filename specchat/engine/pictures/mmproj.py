"""Towers in llama.cpp's `mmproj` files: their settings and tensors as transformers' classes take them.

Keys and names: llama.cpp's convert_hf_to_gguf.py and tools/mtmd/clip-impl.h.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from specchat.engine.gguf.files import GgufFiles
from specchat.engine.gguf.tensors import GgufTensors

SIGLIP = {
    "v.patch_embd": "embeddings.patch_embedding",
    "v.position_embd": "embeddings.position_embedding",
    "v.post_ln": "post_layernorm",
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
"""Names in transformers' SigLIP by those of a file, of layers without their number."""
PROJECTOR = {
    "mm.input_projection.weight": "mm_input_projection_weight",
    "mm.soft_emb_norm.weight": "mm_soft_emb_norm.weight",
}
SCALE = 4
"""Patches along each side of a feature where a file does not say it."""
MARK = "<image_soft_token>"


def kind_of(files: GgufFiles) -> Any:
    """The model_type of the whole model, as `KINDS` knows it."""
    return files.values.get("clip.projector_type") or files.values.get("clip.vision.projector_type")


class Mmproj:
    """The tower of Gemma 3 in a file, for embeddings of `hidden` values."""

    def __init__(self, files: GgufFiles, hidden: int) -> None:
        self.path: Path = files.path
        self._files, self._hidden = files, hidden

    def _number(self, key: str) -> Any:
        """A number of the tower, more than 0.

        Raises:
            ValueError: it is missing, or another.
        """
        value = self._files.values.get(f"clip.vision.{key}")
        if isinstance(value, int | float) and value > 0:
            return value
        raise ValueError(f"clip.vision.{key} is {value or 'missing'}")

    def config(self, vocabulary: Mapping[str, int]) -> Any:
        """transformers' settings of the whole model.

        Raises:
            ValueError: a number is missing, or the vocabulary lacks the token of pictures.
        """
        from transformers import CONFIG_MAPPING

        if MARK not in vocabulary:
            raise ValueError(f"the text's vocabulary lacks the token {MARK}")
        size, patch = self._number("image_size"), self._number("patch_size")
        scale = self._files.values.get("clip.vision.projector.scale_factor") or SCALE
        side = size // patch // scale
        vision = {
            "model_type": "siglip_vision_model",
            "image_size": size,
            "patch_size": patch,
            "hidden_size": self._number("embedding_length"),
            "intermediate_size": self._number("feed_forward_length"),
            "num_hidden_layers": self._number("block_count"),
            "num_attention_heads": self._number("attention.head_count"),
            "layer_norm_eps": self._number("attention.layer_norm_epsilon"),
            "vision_use_head": False,
        }
        whole: Any = CONFIG_MAPPING["gemma3"]
        return whole(
            text_config={"hidden_size": self._hidden},
            vision_config=vision,
            mm_tokens_per_image=side**2,
            image_token_id=vocabulary[MARK],
        )

    def processor(self) -> dict[str, Any]:
        """Settings of transformers' processor."""
        size, header = self._number("image_size"), self._files.headers[0]
        colours = {key: header.entries(f"clip.vision.{key}") for key in ("image_mean", "image_std")}
        return {"size": {"height": size, "width": size}} | {key: one for key, one in colours.items() if one}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors in float32, by their names in transformers' model.

        Raises:
            ValueError: one is of a type that is not read.
            ModelError: the file changed since it was opened.
        """
        with GgufTensors(self._files, {}) as stored:
            found = {self._name(name): stored.in_float32(name) for name in self._files.tensors}
        norm = f"multi_modal_projector.{PROJECTOR['mm.soft_emb_norm.weight']}"
        if norm in found:
            found[norm] = found[norm] - 1  # a file has the factor itself
        return found

    def _name(self, stored: str) -> str:
        if stored in PROJECTOR:
            return f"multi_modal_projector.{PROJECTOR[stored]}"
        name, _, kind = stored.rpartition(".")
        before = "vision_tower."
        if name.startswith("v.blk."):
            _, _, number, name = name.split(".", 3)
            before = f"vision_tower.encoder.layers.{number}."
            if name.startswith("ffn") and self._exchanged:
                name = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}[name]
        return f"{before}{SIGLIP.get(name, name)}.{kind}"

    @property
    def _exchanged(self) -> bool:
        """True where an older converter took the first product of an MLP for `ffn_down`."""
        return self._files.shape("v.blk.0.ffn_up.weight")[:1] == (self._number("embedding_length"),)
