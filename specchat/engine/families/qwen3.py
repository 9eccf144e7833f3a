"""Qwen3 (Yang et al. 2025): Llama's layers with norms of each query and key head."""

from dataclasses import replace

from specchat.engine.families.family import Family, block, decoder, head_norms
from specchat.engine.families.settings import Settings
from specchat.engine.recipe import Layer, Recipe


def recipe(c: Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias, mlp_bias=c.mlp_bias)
        mixer = head_norms(c, plain.mixer, f"{prefix}.self_attn")
        return replace(plain, mixer=replace(mixer, window=c.window))

    return decoder(c, layer)


FAMILY = Family("qwen3", "Qwen3", recipe)
