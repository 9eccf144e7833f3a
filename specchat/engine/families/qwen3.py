"""Qwen3 (Yang et al. 2025): Llama's layers with norms of each query and key head; some of them with a window.

The text part of Qwen3-VL is the same.
"""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder, head_norms, within
from specchat.engine.families.parts.settings import Theta
from specchat.engine.families.qwen2 import QwenSettings
from specchat.engine.foreign import MaybeCount
from specchat.engine.recipe import Layer, Recipe


class Qwen3Settings(QwenSettings):
    head_dim: MaybeCount = 128


class Qwen3VLSettings(Qwen3Settings):
    rope_theta: Theta = 5e5


def recipe(c: Qwen3Settings) -> Recipe:
    of = c.kinds

    def layer(index: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias, mlp_bias=c.mlp_bias)
        mixer = head_norms(c, plain.attention, f"{prefix}.self_attn")
        return within(c.window, replace(plain, mixer=mixer), of[index])

    return decoder(c, layer)


FAMILY = Family("qwen3", "Qwen3", recipe, Qwen3Settings)
VL = Family("qwen3_vl_text", "Qwen3-VL", recipe, Qwen3VLSettings, also_seeing=("qwen3_vl",))
