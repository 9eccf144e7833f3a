"""Granite 3 (IBM 2024): Llama's layers with factors on embeddings, scores, residuals and logits."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import Number
from specchat.engine.recipe import Layer, Recipe


class GraniteSettings(Settings):
    embedding_multiplier: Number = 1.0
    attention_multiplier: Number = 1.0
    residual_multiplier: Number = 1.0
    logits_scaling: Number = 1.0


def recipe(c: GraniteSettings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias, mlp_bias=c.mlp_bias)
        mixer = replace(plain.attention, scale=c.attention_multiplier)
        return replace(plain, mixer=mixer, residual=c.residual_multiplier)

    return replace(decoder(c, layer), embed_scale=c.embedding_multiplier, logit_scale=1 / c.logits_scaling)


FAMILY = Family("granite", "Granite", recipe, GraniteSettings)
