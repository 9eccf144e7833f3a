"""config.json of a head whose layers attend to the target's own KV entries. The app imports this: no torch here."""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from specchat.engine.errors import ModelError
from specchat.engine.foreign import Count, Foreign, Switch, checked
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import HeadRecipe
from specchat.engine.heads.settings import agree
from specchat.engine.recipe import Attention, Layer
from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig, parse_config


class KvMtpKeys(Foreign):
    backbone_hidden_size: Count
    text_config: dict[str, Any] = Field(description="an object")
    use_ordered_embeddings: Switch = False
    num_centroids: Count = 2048
    centroid_intermediate_top_k: Count = 32


@dataclass(frozen=True)
class KvMtpSettings:
    """Settings of such a head.

    Attributes:
        shape: that of its layers as a model of the target's family.
        layers: the layers, which have queries alone; `Attention.share` is the target's layer that they attend to.
    """

    shape: ModelConfig
    layers: tuple[Layer, ...]
    known: KvMtpKeys

    @classmethod
    def read(cls, files: HeadFiles, target: ModelConfig) -> "KvMtpSettings":
        """Parse the settings of `files`.

        Raises:
            ModelError: a key is missing, wrong or unsupported, or the head is for another target.
        """
        path = str(files.folder / "config.json")
        known = checked(KvMtpKeys, files.settings, path)
        own = {"model_type": target.family, "num_kv_shared_layers": 0}
        shape = parse_config(files.folder, {**known.text_config, **own})
        agree(path, "backbone_hidden_size", known.backbone_hidden_size, target.hidden)
        agree(path, "vocab_size", shape.vocab, target.vocab)
        if known.use_ordered_embeddings:
            count, top = known.num_centroids, known.centroid_intermediate_top_k
            if shape.vocab % count or top > count:
                raise ModelError(f"{path}: num_centroids is {count}, of {shape.vocab} tokens and {top} to choose.")
        layers = tuple(_reading(layer, target, path) for layer in shape.recipe.layers)
        return cls(shape, layers, known)


def kv_mtp_recipe(files: HeadFiles, target: ModelConfig, _: Head) -> HeadRecipe:
    """Recipe of a head by `KvMtpSettings.read`."""
    return HeadRecipe(KvMtpSettings.read(files, target).layers, (target.layers,))


def _reading(layer: Layer, target: ModelConfig, path: str) -> Layer:
    """`layer` with queries alone, attending to the target's last layer of its kind that has KV entries.

    Raises:
        ModelError: the target has none of its shape, or queries do not stand apart.
    """
    mixer = layer.mixer
    if not isinstance(mixer, Attention) or layer.input or len(mixer.qkv.names) != 3:
        raise ModelError(
            f"{path}: a layer of this head is not one of attention with queries apart: no such head is run."
        )
    kind = "a window" if mixer.window else "no window"
    found = [
        (index, of)
        for index, of in enumerate(each.mixer for each in target.recipe.layers)
        if isinstance(of, Attention) and of.share is None and bool(of.window) == bool(mixer.window)
    ]
    if not found:
        raise ModelError(f"{path}: this head is for another target: no layer of this one has attention with {kind}.")
    index, of = found[-1]
    if (of.kv_heads, of.head_dim) != (mixer.kv_heads, mixer.head_dim):
        raise ModelError(
            f"{path}: this head is for another target: layer {index} of this one has {of.kv_heads} key heads of "
            f"{of.head_dim} values, not {mixer.kv_heads} of {mixer.head_dim}."
        )
    queries = mixer.qkv.only(0, 1)
    return replace(layer, mixer=replace(mixer, qkv=queries, key_norm=None, value_norm=None, share=index))
