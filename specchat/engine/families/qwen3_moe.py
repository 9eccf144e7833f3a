"""Qwen3-MoE (Yang et al. 2025) and the text part of Qwen3-VL's: Qwen3's layers, most with experts as MLP."""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, SparseSettings, mixture
from specchat.engine.families.parts.family import Family, block, decoder, head_norms, within
from specchat.engine.families.parts.settings import Theta
from specchat.engine.foreign import Count, MaybeCount, Switch
from specchat.engine.recipe import Layer, Recipe


class Qwen3MoeSettings(SparseSettings):
    """Published files leave out what is as here."""

    USUAL = 128
    num_key_value_heads: MaybeCount = 4
    sliding_window: MaybeCount = 4096
    num_experts_per_tok: Chosen = 8
    moe_intermediate_size: Count = 768


class Qwen3VLMoeSettings(Qwen3MoeSettings):
    """Published files leave out what is as here."""

    USUAL = 60
    num_key_value_heads: MaybeCount = 16
    rope_theta: Theta = 5e5
    num_experts_per_tok: Chosen = 4
    moe_intermediate_size: Count = 1408
    tie_word_embeddings: Switch = True


def recipe(c: Qwen3MoeSettings) -> Recipe:
    def layer(index: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias)
        made = within(c.window, replace(plain, mixer=head_norms(c, plain.attention, f"{prefix}.self_attn")))
        if not c.sparse(index):
            return made
        width, norm = c.moe_intermediate_size, c.norm_topk_prob
        return replace(made, feed=mixture(c, f"{prefix}.mlp", width, renormalised=norm))

    return decoder(c, layer)


def of_images(c: Qwen3VLMoeSettings) -> Recipe:
    """Without windows, and with renormalised shares, whatever a file says."""
    return recipe(c.model_copy(update={"use_sliding_window": False, "norm_topk_prob": True}))


FAMILY = Family("qwen3_moe", "Qwen3-MoE", recipe, Qwen3MoeSettings)
VL = Family("qwen3_vl_moe_text", "Qwen3-VL-MoE", of_images, Qwen3VLMoeSettings, also_seeing=("qwen3_vl_moe",))
