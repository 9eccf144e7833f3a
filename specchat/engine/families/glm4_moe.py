"""GLM-4.5 to 4.7 (GLM-4.5 team 2025): half of each head is rotated, and all but the first layers have experts.

These are chosen by sigmoids with a correction, of groups, and stand beside a shared MLP (DeepSeek 2024). The text part
of GLM-4.5V and 4.6V is the same.
"""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.experts import Count as Experts
from specchat.engine.families.parts.family import Family, block, decoder, gated, head_norms, partly
from specchat.engine.foreign import Count, MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Recipe


class Glm4MoeSettings(ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 128
    num_key_value_heads: MaybeCount = 8
    rms_norm_eps: Number = 1e-5
    use_qk_norm: Switch = False
    n_routed_experts: Experts = None
    """Takes the place of num_experts."""
    n_shared_experts: MaybeCount = 1
    num_experts_per_tok: Chosen = 8
    moe_intermediate_size: Count = 1408
    n_group: Count = 1
    topk_group: Count = 1
    routed_scaling_factor: Number = 1.0
    norm_topk_prob: Switch = True
    first_k_dense_replace: int = 1
    """First layers without experts."""

    @property
    def experts(self) -> int:
        """Experts of a layer that has some."""
        return super().experts if self.n_routed_experts is None else self.n_routed_experts


class Glm4VMoeSettings(Glm4MoeSettings):
    attention_bias: Switch = True


def recipe(c: Glm4MoeSettings) -> Recipe:
    def layer(index: int, prefix: str) -> Layer:
        plain = block(c, prefix, qkv_bias=c.attention_bias)
        mixer = partly(c, plain.attention, 0.5)
        if c.use_qk_norm:
            mixer = head_norms(c, mixer, f"{prefix}.self_attn")
        return grouped(c, index, prefix, replace(plain, mixer=mixer))

    return decoder(c, layer)


def grouped(c: Glm4MoeSettings, index: int, prefix: str, layer: Layer) -> Layer:
    """`layer`, number `index`, with experts as MLP if it has some.

    Raises:
        ValueError: groups are fewer than those chosen, not of two experts or more, or leave too few to choose from.
    """
    if index < c.first_k_dense_replace:
        return layer
    count = c.experts
    if c.topk_group > c.n_group:
        raise ValueError(f"topk_group is {c.topk_group}, and n_group is {c.n_group}")
    if c.topk_group < c.n_group:
        of_group = count // c.n_group
        if count % c.n_group or of_group < 2:
            raise ValueError(f"n_group is {c.n_group}, and {count} experts make no such groups of two or more")
        if c.num_experts_per_tok > c.topk_group * of_group:
            left = f"topk_group leaves {c.topk_group * of_group} experts"
            raise ValueError(f"num_experts_per_tok is {c.num_experts_per_tok}, and {left}")
    name, width = f"{prefix}.mlp", c.moe_intermediate_size
    made = replace(
        mixture(c, name, width, renormalised=c.norm_topk_prob),
        sigmoid=True,
        correction=f"{name}.gate.e_score_correction_bias",
        groups=(c.n_group, c.topk_group),
        factor=c.routed_scaling_factor,
        shared=gated(c, f"{name}.shared_experts", width=c.n_shared_experts * width) if c.n_shared_experts else None,
    )
    return replace(layer, feed=made)


FAMILY = Family("glm4_moe", "GLM-4 MoE", recipe, Glm4MoeSettings, mtp="model.layers.{0}.")
VL = Family("glm4v_moe_text", "GLM-4V MoE", recipe, Glm4VMoeSettings, also_seeing=("glm4v_moe",))
