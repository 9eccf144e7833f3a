"""GLM-4 (0414) and GLM-Z1 (GLM team 2024): norms around both halves, half of each head rotated in pairs."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder, partly
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Norm, Recipe


class Glm4Settings(Settings):
    """Published files leave out what is as here."""

    num_key_value_heads: MaybeCount = 2
    head_dim: MaybeCount = 128
    rms_norm_eps: Number = 1.5625e-7
    attention_bias: Switch = True


class Glm4VSettings(Glm4Settings):
    head_dim: MaybeCount = None
    rms_norm_eps: Number = 1e-5


def recipe(c: Glm4Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        plain = block(c, prefix, qkv_bias=c.attention_bias)
        mixer = partly(c, plain.attention, 0.5)
        width = mixer.rope.width if mixer.rope else 0
        return replace(
            plain,
            mixer=replace(mixer, qkv=replace(mixer.qkv, paired=(mixer.head_dim, width))),
            feed=replace(plain.gated, gate_up=plain.gated.gate_up.fused(f"{prefix}.mlp.gate_up_proj")),
            post_mixer=Norm(f"{prefix}.post_self_attn_layernorm", c.hidden_size, c.rms_norm_eps),
            post_feed=Norm(f"{prefix}.post_mlp_layernorm", c.hidden_size, c.rms_norm_eps),
        )

    return decoder(c, layer)


FAMILY = Family("glm4", "GLM-4", recipe, Glm4Settings)
VL = Family("glm4v_text", "GLM-4V", recipe, Glm4VSettings, also_seeing=("glm4v", "glm46v"))
