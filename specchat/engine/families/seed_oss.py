"""Seed-OSS (ByteDance Seed team 2025): Llama's layers with biases of queries, keys and values."""

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount, Switch
from specchat.engine.recipe import Layer, Recipe


class SeedOssSettings(Settings):
    head_dim: MaybeCount = 128
    attention_bias: Switch = True
    attention_out_bias: Switch = False


def recipe(c: SeedOssSettings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        return block(c, prefix, qkv_bias=c.attention_bias, out_bias=c.attention_out_bias, mlp_bias=c.mlp_bias)

    return decoder(c, layer)


FAMILY = Family("seed_oss", "Seed-OSS", recipe, SeedOssSettings)
