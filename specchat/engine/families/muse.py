"""Muse Glimmer (Meta 2026): Gemma's order of norms; embeddings, queries and keys are normed without a weight."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.family import Family
from specchat.engine.families.parts.settings import MaybeNumber, Settings
from specchat.engine.foreign import MaybeCount, Number
from specchat.engine.recipe import Attention, Layer, Norm, Recipe, Unsupported


class MuseSettings(Settings):
    """Published files leave out what is as here."""

    num_key_value_heads: MaybeCount = 2
    head_dim: MaybeCount = 128
    rms_norm_eps: Number = 1e-5
    post_norm_eps: Number = 1e-8
    sliding_window: MaybeCount = 2048
    hidden_activation: str = "silu"
    qk_scale_factor: Number = 3.87
    output_multiplier: Number = 0.19611613513818404
    final_logit_softcapping: MaybeNumber = 20.0
    layer_rope_theta: Annotated[list[float] | None, Field(description="a list of numbers")] = None
    """0 for a layer whose queries and keys are not rotated."""


def recipe(c: MuseSettings) -> Recipe:
    if c.attention_bias:
        raise Unsupported("biases of queries beside a gate without: not in specchat's decoder")
    layers = c.num_hidden_layers
    inner = [(layers - 1 - index) % 4 > 0 for index in range(layers)]
    of, turns = parts.kinds(c, lambda index: inner[index]), c.layer_rope_theta or inner
    if len(turns) != layers:
        raise ValueError(f"layer_rope_theta has {len(turns)} values, and num_hidden_layers is {layers}")

    def attention(index: int, prefix: str) -> Attention:
        made = parts.attention(c, prefix)
        query, key, value = made.qkv.outputs
        names = made.qkv.names[0], f"{prefix}.gate_proj", *made.qkv.names[1:]
        qkv = replace(made.qkv, names=names, outputs=(query, query, key, value), alternating=made.head_dim)
        own, scale = Norm("", made.head_dim, c.rms_norm_eps), c.qk_scale_factor * made.scale
        made = replace(made, qkv=qkv, gated=True, scale=scale, query_norm=own, key_norm=own)
        return made if turns[index] else replace(made, rope=None)

    def layer(index: int, prefix: str) -> Layer:
        feed = parts.gated(c, f"{prefix}.mlp", act=c.hidden_activation)
        made = parts.between_norms(c, prefix, attention(index, f"{prefix}.self_attn"), feed, plus_one=True)
        mixer, post = (replace(one, eps=c.post_norm_eps) for one in made.post_norms)
        return parts.within(c.sliding_window, replace(made, post_mixer=mixer, post_feed=post), of[index])

    cap, scale = c.final_logit_softcapping or 0.0, c.output_multiplier
    return replace(parts.decoder(c, layer), embed_eps=c.rms_norm_eps, logit_scale=scale, cap=cap)


FAMILY = Family("muse_glimmer_text", "Muse", recipe, MuseSettings, also_seeing=("muse_glimmer",))
