"""Qwen3-Next (Qwen team 2025): Qwen3.5's with experts; recurrent layers store their first products head by head."""

from dataclasses import replace

from specchat.engine.families.parts.delta import DeltaSettings, delta
from specchat.engine.families.parts.experts import Chosen, SparseSettings, mixture, with_shared
from specchat.engine.families.parts.family import Family, gated
from specchat.engine.families.qwen3_5 import Qwen35Settings, hybrid
from specchat.engine.foreign import Count, MaybeCount, Switch
from specchat.engine.recipe import Delta, Experts, Gated, Recipe


class Qwen3NextSettings(Qwen35Settings, SparseSettings):
    """Published files leave out what is as here."""

    USUAL = 512
    num_key_value_heads: MaybeCount = 2
    num_experts_per_tok: Chosen = 10
    norm_topk_prob: Switch = True
    moe_intermediate_size: Count = 512
    shared_expert_intermediate_size: Count = 512
    by_head: bool = True
    """False in GGUF files: their first products are stored part by part."""


def recipe(c: Qwen3NextSettings) -> Recipe:
    def feed(index: int, name: str) -> Gated | Experts:
        if not c.sparse(index):
            return gated(c, name)
        width, norm = c.moe_intermediate_size, c.norm_topk_prob
        experts = mixture(c, name, width, renormalised=norm)
        return with_shared(c, name, experts, c.shared_expert_intermediate_size)

    return hybrid(c, feed, by_head if c.by_head else delta)


def by_head(c: DeltaSettings, prefix: str) -> Delta:
    """A recurrent mixer whose queries, keys, values and z, and b and a, follow each other key head by key head."""
    made = delta(c, prefix)
    assert made.gates
    key, value = made.key_dim, made.sharing * made.value_dim
    mix = replace(made.mix.fused(f"{prefix}.in_proj_qkvz"), by_head=(key, key, value, value))
    gates = replace(made.gates.fused(f"{prefix}.in_proj_ba"), by_head=(made.sharing, made.sharing))
    return replace(made, mix=mix, gates=gates)


FAMILY = Family("qwen3_next", "Qwen3-Next", recipe, Qwen3NextSettings, mtp="mtp.")
