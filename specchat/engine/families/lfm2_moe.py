"""LFM2 with experts (Liquid AI 2025): LFM2's layers, all but the first with experts by sigmoids.

transformers adds 1e-6 to the sum that shares are divided by; here nothing is added.
"""

from dataclasses import replace

from specchat.engine.families.lfm2 import hybrid
from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.family import Family
from specchat.engine.families.parts.short_conv import ShortConvSettings, mlp
from specchat.engine.foreign import Count, Number, Switch
from specchat.engine.recipe import Experts, Gated, Recipe


class Lfm2MoeSettings(ShortConvSettings, ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 32
    intermediate_size: Count = 7168
    moe_intermediate_size: Count = 1792
    num_dense_layers: int = 2
    """First layers without experts."""
    num_experts_per_tok: Chosen = 4
    use_expert_bias: Switch = True
    norm_topk_prob: Switch = True
    routed_scaling_factor: Number = 1.0

    @property
    def width(self) -> int:
        """Values between the products of an MLP."""
        return self.intermediate_size


def recipe(c: Lfm2MoeSettings) -> Recipe:
    def feed(index: int, name: str) -> Gated | Experts:
        if index < c.num_dense_layers:
            return mlp(c, name)
        experts = mixture(c, name, c.moe_intermediate_size, renormalised=c.norm_topk_prob, act="silu")
        correction = f"{name}.expert_bias" if c.use_expert_bias else ""
        return replace(experts, sigmoid=True, correction=correction, factor=c.routed_scaling_factor)

    return hybrid(c, feed)


FAMILY = Family("lfm2_moe", "LFM2-MoE", recipe, Lfm2MoeSettings)
