"""Towers in llama.cpp's `mmproj` files: their settings and tensors as transformers' classes take them.

Keys, names and layouts: llama.cpp's convert_hf_to_gguf.py and tools/mtmd/clip-impl.h.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from specchat.engine.gguf.files import GgufFiles
from specchat.engine.gguf.tensors import GgufTensors
from specchat.engine.weights.checkpoint import Checkpoint

COLOURS = "image_mean", "image_std"


class Mmproj(ABC):
    """The tower in a file beside the text of a checkpoint."""

    model_type: ClassVar[str]
    """The whole model's."""
    mark: ClassVar[str]
    """The token of pictures."""
    layers: ClassVar[str]
    """Beginning of the names of layers in transformers' model, before their numbers."""
    names: ClassVar[Mapping[str, str]]
    """Names in transformers' model by those of a file, without their last part; in layers of what follows a number."""

    def __init__(self, files: GgufFiles, checkpoint: Checkpoint) -> None:
        self.path: Path = files.path
        self._files, self._text = files, checkpoint

    def number(self, key: str, usual: int = 0) -> Any:
        """A number of the tower, more than 0; `usual` where the file leaves it out.

        Raises:
            ValueError: it is missing, or another.
        """
        value = self._files.values.get(f"clip.vision.{key}", usual)
        if isinstance(value, int | float) and value > 0:
            return value
        raise ValueError(f"clip.vision.{key} is {value or 'missing'}")

    def config(self, vocabulary: Mapping[str, int]) -> Any:
        """transformers' settings of the whole model.

        Raises:
            ValueError: a number is missing, or the vocabulary lacks the token of pictures.
        """
        from transformers import CONFIG_MAPPING

        if self.mark not in vocabulary:
            raise ValueError(f"the text's vocabulary lacks the token {self.mark}")
        vision = {
            "image_size": self.number("image_size"),
            "patch_size": self.number("patch_size"),
            "hidden_size": self.number("embedding_length"),
            "intermediate_size": self.number("feed_forward_length"),
            "num_hidden_layers": self.number("block_count"),
            "num_attention_heads": self.number("attention.head_count"),
        }
        whole: Any = CONFIG_MAPPING[self.model_type]
        return whole(**self.settings(vision), image_token_id=vocabulary[self.mark])

    @abstractmethod
    def settings(self, vision: dict[str, Any]) -> dict[str, Any]:
        """The settings of the whole model with those of `vision`, to which it adds."""

    def processor(self) -> dict[str, Any]:
        """Settings of transformers' processor."""
        found = {key: self._files.headers[0].entries(f"clip.vision.{key}") for key in COLOURS}
        return {key: listed for key, listed in found.items() if listed}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors in float32, by their names in transformers' model.

        Raises:
            ValueError: one is of a type that is not read.
            ModelError: the file changed since it was opened.
        """
        found: dict[str, Tensor] = {}
        with GgufTensors(self._files, {}) as stored:
            for name in self._files.tensors:
                if name.startswith(("v.", "mm.")) and not name.startswith("v.token_embd."):  # the text has these
                    found[self._name(name)] = self.changed(name, stored.in_float32(name))
        return found

    def changed(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor as transformers has it."""
        del name
        return tensor

    def _name(self, stored: str) -> str:
        name, _, kind = stored.rpartition(".")
        if not name.startswith("v.blk."):
            return f"{self.names[name]}.{kind}" if name in self.names else self.names.get(stored, stored)
        _, _, number, part = name.split(".", 3)
        return f"{self.layers}{number}.{self.names.get(part, part)}.{kind}"


class Gemma3(Mmproj):
    """Gemma 3's SigLIP."""

    model_type, mark, layers = "gemma3", "<image_soft_token>", "vision_tower.encoder.layers."
    names: ClassVar = {
        "v.patch_embd": "vision_tower.embeddings.patch_embedding",
        "v.position_embd": "vision_tower.embeddings.position_embedding",
        "v.post_ln": "vision_tower.post_layernorm",
        "mm.input_projection.weight": "multi_modal_projector.mm_input_projection_weight",
        "mm.soft_emb_norm": "multi_modal_projector.mm_soft_emb_norm",
        "ln1": "layer_norm1",
        "ln2": "layer_norm2",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_out": "self_attn.out_proj",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
    }

    def settings(self, vision: dict[str, Any]) -> dict[str, Any]:
        side = vision["image_size"] // vision["patch_size"] // self.number("projector.scale_factor", 4)
        eps = self.number("attention.layer_norm_epsilon")
        more = {"model_type": "siglip_vision_model", "layer_norm_eps": eps, "vision_use_head": False}
        text = {"hidden_size": self._text.config.hidden}
        return {"text_config": text, "vision_config": vision | more, "mm_tokens_per_image": side**2}

    def processor(self) -> dict[str, Any]:
        size = self.number("image_size")
        return super().processor() | {"size": {"height": size, "width": size}}

    def changed(self, name: str, tensor: Tensor) -> Tensor:
        return tensor - 1 if "soft_emb_norm" in name else tensor  # a file has the factor itself

    def _name(self, stored: str) -> str:
        # Older converters took the first product of an MLP for the one down.
        if "ffn_" in stored and self._files.shape("v.blk.0.ffn_up.weight")[:1] == (self.number("embedding_length"),):
            part = stored.split(".")[3]
            stored = stored.replace(part, {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}[part])
        return super()._name(stored)


class Pixtral(Mmproj):
    """Mistral 3's Pixtral, whose heads rotate pairs of neighbours in a file."""

    model_type, mark, layers = "mistral3", "[IMG]", "vision_tower.transformer.layers."
    names: ClassVar = {
        "v.patch_embd": "vision_tower.patch_conv",
        "v.pre_ln": "vision_tower.ln_pre",
        "mm.input_norm": "multi_modal_projector.norm",
        "mm.patch_merger": "multi_modal_projector.patch_merger.merging_layer",
        "mm.1": "multi_modal_projector.linear_1",
        "mm.2": "multi_modal_projector.linear_2",
        "ln1": "attention_norm",
        "ln2": "ffn_norm",
        "attn_q": "attention.q_proj",
        "attn_k": "attention.k_proj",
        "attn_v": "attention.v_proj",
        "attn_out": "attention.o_proj",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
    }

    def settings(self, vision: dict[str, Any]) -> dict[str, Any]:
        more = {"model_type": "pixtral", "hidden_act": "silu" if self._files.values.get("clip.use_silu") else "gelu"}
        of_text = self._text.settings
        text = {"hidden_size": of_text["hidden_size"], "rms_norm_eps": of_text["rms_norm_eps"]}
        biased = "mm.1.bias" in self._files.tensors
        merge = {"spatial_merge_size": self.number("spatial_merge_size", 2)}
        return {"text_config": text, "vision_config": vision | more, "multimodal_projector_bias": biased} | merge

    def processor(self) -> dict[str, Any]:
        patch = self.number("patch_size")
        sizes = {"size": {"longest_edge": self.number("image_size")}, "patch_size": {"height": patch, "width": patch}}
        return super().processor() | sizes

    def changed(self, name: str, tensor: Tensor) -> Tensor:
        if "attn_q." not in name and "attn_k." not in name:
            return tensor
        heads: Tensor = tensor.unflatten(0, (self.number("attention.head_count"), -1, 2))
        return heads.transpose(1, 2).flatten(0, 2)


TOWERS: dict[Any, type[Mmproj]] = {"gemma3": Gemma3, "pixtral": Pixtral}
"""By the projector that a file names."""


def tower_of(files: GgufFiles) -> type[Mmproj]:
    """The way to read a file of `gguf.mmproj.mmproj_file`."""
    return TOWERS[files.values.get("clip.projector_type") or files.values.get("clip.vision.projector_type")]
