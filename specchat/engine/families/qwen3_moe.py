"""Qwen3-MoE (Yang et al. 2025): Qwen3's layers, most with a mixture of experts as MLP."""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, SparseSettings, mixture
from specchat.engine.families.parts.family import Family, block, decoder, head_norms, within
from specchat.engine.foreign import Count, MaybeCount
from specchat.engine.recipe import Layer, Recipe

EXPERTS = 128


class Qwen3MoeSettings(SparseSettings):
    """Published files leave out what is as here."""

    num_key_value_heads: MaybeCount = 4
    sliding_window: MaybeCount = 4096
    num_experts_per_tok: Chosen = 8
    moe_intermediate_size: Count = 768


def recipe(c: Qwen3MoeSettings) -> Recipe:
    def layer(index: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias)
        made = within(c.window, replace(plain, mixer=head_norms(c, plain.attention, f"{prefix}.self_attn")))
        if not c.sparse(index, EXPERTS):
            return made
        width, norm = c.moe_intermediate_size, c.norm_topk_prob
        return replace(made, feed=mixture(c, f"{prefix}.mlp", c.experts(EXPERTS), width, renormalised=norm))

    return decoder(c, layer)


FAMILY = Family("qwen3_moe", "Qwen3-MoE", recipe, Qwen3MoeSettings)
