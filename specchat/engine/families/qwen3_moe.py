"""Qwen3-MoE (Yang et al. 2025): Qwen3's layers, most with a mixture of experts as MLP."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.family import Family, block, decoder, head_norms, within
from specchat.engine.foreign import OR_NONE, Count, MaybeCount, Switch
from specchat.engine.recipe import Layer, Recipe


class Qwen3MoeSettings(ExpertsSettings):
    """Published files leave out what is as here."""

    num_key_value_heads: MaybeCount = 4
    sliding_window: MaybeCount = 4096
    num_experts_per_tok: Chosen = 8
    moe_intermediate_size: Count = 768
    norm_topk_prob: Switch = False
    decoder_sparse_step: Count = 1
    mlp_only_layers: Annotated[list[int] | None, OR_NONE, Field(description="a list of layers")] = None

    def sparse(self, index: int) -> bool:
        """True where layer `index` has experts."""
        named = index in (self.mlp_only_layers or ())
        return not named and self.experts(128) > 0 and (index + 1) % self.decoder_sparse_step == 0


def recipe(c: Qwen3MoeSettings) -> Recipe:
    def layer(index: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias)
        made = within(c.window, replace(plain, mixer=head_norms(c, plain.attention, f"{prefix}.self_attn")))
        if not c.sparse(index):
            return made
        width, norm = c.moe_intermediate_size, c.norm_topk_prob
        return replace(made, feed=mixture(c, f"{prefix}.mlp", c.experts(128), width, renormalised=norm))

    return decoder(c, layer)


FAMILY = Family("qwen3_moe", "Qwen3-MoE", recipe, Qwen3MoeSettings)
