"""GLM-4.5 to 4.7 (GLM-4.5 team 2025): half of each head is rotated, and all but the first layers have experts.

The text part of GLM-4.5V and 4.6V is the same.
"""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder, head_norms, partly
from specchat.engine.families.parts.grouped import GroupedSettings, grouped
from specchat.engine.foreign import MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Recipe


class Glm4MoeSettings(GroupedSettings):
    """Published files leave out what is as here."""

    USUAL = 128
    num_key_value_heads: MaybeCount = 8
    rms_norm_eps: Number = 1e-5
    use_qk_norm: Switch = False


class Glm4VMoeSettings(Glm4MoeSettings):
    attention_bias: Switch = True


def recipe(c: Glm4MoeSettings) -> Recipe:
    def layer(index: int, prefix: str) -> Layer:
        plain = block(c, prefix, qkv_bias=c.attention_bias)
        mixer = partly(c, plain.attention, 0.5)
        if c.use_qk_norm:
            mixer = head_norms(c, mixer, f"{prefix}.self_attn")
        return grouped(c, index, prefix, replace(plain, mixer=mixer))

    return decoder(c, layer)


FAMILY = Family("glm4_moe", "GLM-4 MoE", recipe, Glm4MoeSettings, mtp="model.layers.{0}.")
VL = Family("glm4v_moe_text", "GLM-4V MoE", recipe, Glm4VMoeSettings, also_seeing=("glm4v_moe",))
