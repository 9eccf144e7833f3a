"""OLMo 2 (OLMo team 2024): norms after attention and MLP instead of before, and over all queries and all keys.

OLMo 3 (OLMo team 2025) has a window in three of four layers, and rotary embeddings without scaling there.
"""

from dataclasses import replace

from specchat.engine.families.parts.family import (
    Family,
    attention,
    decoder,
    head_norms,
    kinds,
    norms_after,
    rope_of_kind,
    within,
)
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount, Number
from specchat.engine.recipe import Layer, Recipe


class Olmo2Settings(Settings):
    rms_norm_eps: Number = 1e-5


class Olmo3Settings(Olmo2Settings):
    sliding_window: MaybeCount = 4096


def olmo2(c: Olmo2Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        name, bias = f"{prefix}.self_attn", c.attention_bias
        mixer = attention(c, name, qkv_bias=bias, out_bias=bias)
        return norms_after(c, prefix, head_norms(c, mixer, name, together=True))

    return decoder(c, layer)


def olmo3(c: Olmo3Settings) -> Recipe:
    plain, of = olmo2(c), kinds(c, lambda index: (index + 1) % 4 > 0)

    def turned(layer: Layer, kind: str) -> Layer:
        rope = rope_of_kind(c, layer.attention.head_dim, kind, c.rope_theta or 5e5)
        return within(c.sliding_window, replace(layer, mixer=replace(layer.attention, rope=rope)), kind)

    return replace(plain, layers=tuple(map(turned, plain.layers, of)))


OLMO_2 = Family("olmo2", "OLMo 2", olmo2, Olmo2Settings)
OLMO_3 = Family("olmo3", "OLMo 3", olmo3, Olmo3Settings)
