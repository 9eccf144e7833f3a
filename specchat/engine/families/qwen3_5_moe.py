"""Qwen3.5 and 3.6 with experts (Qwen team 2026): as without, but for experts beside a gated MLP that every row has."""

from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture, with_shared
from specchat.engine.families.parts.family import Family
from specchat.engine.families.qwen3_5 import Qwen35Settings, hybrid
from specchat.engine.foreign import Count, MaybeCount
from specchat.engine.recipe import Experts, Recipe


class Qwen35MoeSettings(Qwen35Settings, ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 256
    num_key_value_heads: MaybeCount = 2
    intermediate_size: Count = 512
    """No layer has an MLP of this width."""
    num_experts_per_tok: Chosen = 8
    moe_intermediate_size: Count = 512
    shared_expert_intermediate_size: Count = 512


def recipe(c: Qwen35MoeSettings) -> Recipe:
    def feed(_: int, name: str) -> Experts:
        experts = mixture(c, name, c.moe_intermediate_size, renormalised=True)
        return with_shared(c, name, experts, c.shared_expert_intermediate_size)

    return hybrid(c, feed)


FAMILY = Family("qwen3_5_moe_text", "Qwen3.5-MoE", recipe, Qwen35MoeSettings, also_seeing=("qwen3_5_moe",), mtp="mtp.")
