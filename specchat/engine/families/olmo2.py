"""OLMo 2 (OLMo team 2024): norms after attention and MLP instead of before, and over all queries and all keys."""

from specchat.engine.families.family import Family, attention, decoder, gated, head_norms
from specchat.engine.families.settings import Settings
from specchat.engine.foreign import Number
from specchat.engine.recipe import Layer, Norm, Recipe


class Olmo2Settings(Settings):
    rms_norm_eps: Number = 1e-5


def recipe(c: Olmo2Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        bias = c.attention_bias
        mixer = attention(c, f"{prefix}.self_attn", qkv_bias=bias, out_bias=bias)
        return Layer(
            mixer=head_norms(c, mixer, f"{prefix}.self_attn", together=True),
            feed=gated(c, f"{prefix}.mlp"),
            pre_mixer=None,
            pre_feed=None,
            post_mixer=Norm(f"{prefix}.post_attention_layernorm", c.hidden_size, c.rms_norm_eps),
            post_feed=Norm(f"{prefix}.post_feedforward_layernorm", c.hidden_size, c.rms_norm_eps),
        )

    return decoder(c, layer)


FAMILY = Family("olmo2", "OLMo 2", recipe, Olmo2Settings)
