"""DeepSeek V2 and V2 Lite (DeepSeek 2024): V3's layers, with experts by a softmax, of groups that go by their best."""

from dataclasses import replace

from specchat.engine.families.deepseek_v3 import DeepseekV3Settings, latent_attention
from specchat.engine.families.parts.experts import Chosen
from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.grouped import grouped
from specchat.engine.foreign import Count, MaybeCount, Number, shown
from specchat.engine.recipe import Experts, Layer, Recipe, Unsupported

GREEDY, LIMITED = "greedy", "group_limited_greedy"
"""Ways of choosing experts: among all, or among those of some groups."""


class DeepseekV2Settings(DeepseekV3Settings):
    """Published files leave out what is as here."""

    USUAL = 64
    num_experts_per_tok: Chosen
    moe_intermediate_size: Count = 1407
    n_shared_experts: MaybeCount = 2
    n_group: MaybeCount = None
    topk_group: MaybeCount = None
    topk_method: str = GREEDY
    routed_scaling_factor: Number = 1.0
    first_k_dense_replace: int = 0


def recipe(c: DeepseekV2Settings) -> Recipe:
    if c.topk_method not in (GREEDY, LIMITED):
        raise Unsupported(f"specchat's decoder has no topk_method {shown(c.topk_method)}, only {GREEDY} and {LIMITED}")

    def layer(index: int, prefix: str) -> Layer:
        plain = replace(block(c, prefix), mixer=latent_attention(c, f"{prefix}.self_attn"))
        whole = grouped(c, index, prefix, plain)
        if not isinstance(whole.feed, Experts):
            return whole
        groups = whole.feed.groups if c.topk_method == LIMITED else (1, 1)
        plainly = replace(whole.feed, sigmoid=False, correction="", renormalised=False, groups=groups, by_best=True)
        return replace(whole, feed=plainly)

    return decoder(c, layer)


FAMILY = Family("deepseek_v2", "DeepSeek V2", recipe, DeepseekV2Settings)
