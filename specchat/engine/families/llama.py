"""Llama (Touvron et al. 2023), and every checkpoint of that model_type."""

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings
from specchat.engine.recipe import Layer, Recipe


def recipe(c: Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        bias = c.attention_bias
        return block(c, prefix, qkv_bias=bias, out_bias=bias, mlp_bias=c.mlp_bias)

    return decoder(c, layer)


FAMILY = Family("llama", "Llama", recipe)
