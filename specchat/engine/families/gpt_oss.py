"""gpt-oss (OpenAI 2025): experts with clamped gates, attention sinks, windows in every second layer."""

from dataclasses import replace

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.family import Family
from specchat.engine.foreign import MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Norm, Recipe, Unsupported

ROPE = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
GATE = 1.702, 7.0
"""Slope and bound of the gates."""


class GptOssSettings(ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 128
    head_dim: MaybeCount = 64
    sliding_window: MaybeCount = 128
    rms_norm_eps: Number = 1e-5
    num_experts_per_tok: Chosen = 4
    attention_bias: Switch = True
    swiglu_alpha: Number = GATE[0]
    swiglu_limit: Number = GATE[1]


def recipe(c: GptOssSettings) -> Recipe:
    if (c.swiglu_alpha, c.swiglu_limit) != GATE:
        raise Unsupported(f"specchat's decoder has no swiglu_alpha and swiglu_limit but {GATE[0]} and {GATE[1]}")
    if not c.scaling:
        c = c.model_copy(update={"rope_parameters": {**ROPE, "rope_theta": c.rope_theta or 150_000.0}})
    of = parts.kinds(c, lambda index: (index + 1) % 2 > 0)

    def layer(index: int, prefix: str) -> Layer:
        name, bias = f"{prefix}.self_attn", c.attention_bias
        mixer = parts.attention(c, name, qkv_bias=bias, out_bias=bias)
        experts = mixture(c, f"{prefix}.mlp", c.intermediate_size, renormalised=True, bias=True, act=parts.CLAMPED)
        before, between = (Norm(f"{prefix}.{end}", c.hidden_size, c.rms_norm_eps) for end in parts.BEFORE)
        made = Layer(replace(mixer, sinks=f"{name}.sinks"), experts, pre_mixer=before, pre_feed=between)
        return parts.within(c.sliding_window, made, of[index])

    return parts.decoder(c, layer)


FAMILY = Family("gpt_oss", "gpt-oss", recipe, GptOssSettings)
