"""Llama (Touvron et al. 2023), and every checkpoint of that model_type."""

from dataclasses import replace

from specchat.engine.families.family import Family, block, decoder
from specchat.engine.families.settings import Settings
from specchat.engine.recipe import Layer, Recipe


def recipe(c: Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias, mlp_bias=c.mlp_bias)
        return replace(plain, mixer=replace(plain.mixer, window=c.window))

    return decoder(c, layer)


FAMILY = Family("llama", "Llama", recipe)
