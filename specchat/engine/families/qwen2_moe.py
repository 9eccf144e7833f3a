"""Qwen2-MoE (Yang et al. 2024): Qwen2's layers, most with experts beside a gated MLP that every row has."""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, SparseSettings, mixture, with_shared
from specchat.engine.families.parts.family import Family, block, decoder, kinds, within
from specchat.engine.foreign import Count, MaybeCount, Switch
from specchat.engine.recipe import Layer, Recipe


class Qwen2MoeSettings(SparseSettings):
    """Published files leave out what is as here."""

    USUAL = 60
    num_key_value_heads: MaybeCount = 16
    sliding_window: MaybeCount = 4096
    max_window_layers: MaybeCount = 28
    num_experts_per_tok: Chosen = 4
    moe_intermediate_size: Count = 1408
    shared_expert_intermediate_size: Count = 5632
    qkv_bias: Switch = True


def recipe(c: Qwen2MoeSettings) -> Recipe:
    # As transformers has it: every second of the first layers.
    of = kinds(c, lambda index: bool(c.window) and index % 2 == 0 and index < (c.max_window_layers or 0))

    def layer(index: int, prefix: str) -> Layer:
        made = within(c.window, block(c, prefix, qkv_bias=c.qkv_bias), of[index])
        if not c.sparse(index):
            return made
        name = f"{prefix}.mlp"
        experts = mixture(c, name, c.moe_intermediate_size, renormalised=c.norm_topk_prob)
        return replace(made, feed=with_shared(c, name, experts, c.shared_expert_intermediate_size))

    return decoder(c, layer)


FAMILY = Family("qwen2_moe", "Qwen2-MoE", recipe, Qwen2MoeSettings)
