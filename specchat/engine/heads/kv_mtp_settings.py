"""config.json of a head whose layers attend to the target's own KV entries. The app imports this: no torch here."""

from dataclasses import replace

from specchat.engine.errors import ModelError
from specchat.engine.foreign import shown
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import HeadRecipe
from specchat.engine.heads.settings import HeadSettings, read_keys
from specchat.engine.recipe import Attention, Layer
from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig, parse_config


def kv_mtp(files: HeadFiles, target: ModelConfig, family: Head) -> HeadSettings:
    """Settings of a head whose layers have queries alone; `Attention.share` is the target's layer that they attend to.

    Raises:
        ModelError: a key is missing, wrong or unsupported, or the head is for another target.
    """
    _, keys = read_keys(files, files.settings, family)
    path = keys.path
    text = files.settings.get("text_config")
    if not isinstance(text, dict):
        raise ModelError(f"{path}: text_config is {shown(text)}, not an object.")
    shape = parse_config(files.folder, {**text, "model_type": target.family, "num_kv_shared_layers": 0})
    keys.agree("backbone_hidden_size", keys.backbone_hidden_size, target.hidden)
    keys.agree("vocab_size", shape.vocab, target.vocab)
    count, top = keys.num_centroids, keys.centroid_intermediate_top_k
    if keys.use_ordered_embeddings and (shape.vocab % count or top > count):
        raise ModelError(f"{path}: num_centroids is {count}, of {shape.vocab} tokens and {top} to choose.")
    layers = tuple(_reading(layer, target, path) for layer in shape.recipe.layers)
    return HeadSettings(shape, HeadRecipe(layers, (target.layers,)), keys)


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
