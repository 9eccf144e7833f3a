"""LFM2 (Liquid AI 2025): short convolutions, and every few layers attention with norms of heads."""

from collections.abc import Callable
from dataclasses import replace

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.family import FULL, Family
from specchat.engine.families.parts.short_conv import ShortConvSettings, attention, mlp, short_conv
from specchat.engine.recipe import Experts, Gated, Layer, Norm, Recipe, Unsupported

CONV = "conv"
"""The kind of short convolutions in "layer_types"."""


def recipe(c: ShortConvSettings) -> Recipe:
    return hybrid(c, lambda _, name: mlp(c, name))


def hybrid(c: ShortConvSettings, feed: Callable[[int, str], Gated | Experts]) -> Recipe:
    """The recipe, with `feed` of a layer's number and the beginning of its names."""
    if c.conv_bias:
        raise Unsupported("short convolutions with biases: not in specchat's decoder")
    tied = c.tie_word_embeddings if c.tie_embedding is None else c.tie_embedding
    c = c.model_copy(update={"rms_norm_eps": c.norm_eps, "tie_word_embeddings": tied})
    attends = range(c.num_hidden_layers) if c.full_attn_idxs is None else c.full_attn_idxs
    of = parts.kinds(c, lambda index: index not in attends, CONV)

    def layer(index: int, prefix: str) -> Layer:
        before, between = (Norm(f"{prefix}.{name}_norm", c.hidden_size, c.norm_eps) for name in ("operator", "ffn"))
        mixer = attention(c, f"{prefix}.self_attn") if of[index] == FULL else short_conv(c, f"{prefix}.conv")
        return Layer(mixer, feed(index, f"{prefix}.feed_forward"), before, between)

    made = parts.decoder(c, layer)
    return replace(made, norm=replace(made.norm, name="model.embedding_norm"))


FAMILY = Family("lfm2", "LFM2", recipe, ShortConvSettings, also_seeing=("lfm2_vl",))
