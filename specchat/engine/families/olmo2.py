"""OLMo 2 (OLMo team 2024): norms after attention and MLP instead of before, and over all queries and all keys."""

from specchat.engine.families.family import Family, attention, decoder, head_norms, norms_after
from specchat.engine.families.settings import Settings
from specchat.engine.foreign import Number
from specchat.engine.recipe import Layer, Recipe


class Olmo2Settings(Settings):
    rms_norm_eps: Number = 1e-5


def recipe(c: Olmo2Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        name, bias = f"{prefix}.self_attn", c.attention_bias
        mixer = attention(c, name, qkv_bias=bias, out_bias=bias)
        return norms_after(c, prefix, head_norms(c, mixer, name, together=True))

    return decoder(c, layer)


FAMILY = Family("olmo2", "OLMo 2", recipe, Olmo2Settings)
