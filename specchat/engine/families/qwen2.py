"""Qwen2 and Qwen2.5: Llama's layers with biases of queries, keys and values."""

from dataclasses import replace

from specchat.engine.families.family import Family, block, decoder
from specchat.engine.families.settings import Settings
from specchat.engine.recipe import Layer, Recipe


def recipe(c: Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        plain = block(c, prefix, qkv_bias=True, mlp_bias=c.mlp_bias)
        return replace(plain, mixer=replace(plain.mixer, window=c.window))

    return decoder(c, layer)


FAMILY = Family("qwen2", "Qwen2", recipe)
