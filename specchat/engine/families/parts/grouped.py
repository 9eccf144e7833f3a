"""Experts chosen by sigmoids with a correction, of groups, beside a shared MLP (DeepSeek 2024)."""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.experts import Count as Experts
from specchat.engine.families.parts.family import gated
from specchat.engine.foreign import Count, MaybeCount, Number, Switch
from specchat.engine.recipe import Experts as Mixture
from specchat.engine.recipe import Layer


class GroupedSettings(ExpertsSettings):
    """Published files leave out what is as here."""

    n_routed_experts: Experts = None
    """Takes the place of num_experts."""
    n_shared_experts: MaybeCount = 1
    num_experts_per_tok: Chosen = 8
    moe_intermediate_size: Count = 1408
    n_group: MaybeCount = 1
    topk_group: MaybeCount = 1
    routed_scaling_factor: Number = 1.0
    norm_topk_prob: Switch = True
    first_k_dense_replace: int = 1
    """First layers without experts."""

    @property
    def experts(self) -> int:
        """Experts of a layer that has some."""
        return super().experts if self.n_routed_experts is None else self.n_routed_experts


def grouped(c: GroupedSettings, index: int, prefix: str, layer: Layer) -> Layer:
    """`layer`, number `index`, with experts as MLP if it has some; as `grouped_experts`."""
    if index < c.first_k_dense_replace:
        return layer
    return replace(layer, feed=grouped_experts(c, f"{prefix}.mlp"))


def grouped_experts(c: GroupedSettings, name: str) -> Mixture:
    """The experts of a layer; `name` begins the names of their tensors.

    Raises:
        ValueError: groups are fewer than those chosen, not of two experts or more, or leave too few to choose from.
    """
    count, groups, kept = c.experts, c.n_group or 1, c.topk_group or 1
    if kept > groups:
        raise ValueError(f"topk_group is {kept}, and n_group is {groups}")
    if kept < groups:
        of_group = count // groups
        if count % groups or of_group < 2:
            raise ValueError(f"n_group is {groups}, and {count} experts make no such groups of two or more")
        if c.num_experts_per_tok > kept * of_group:
            left = f"topk_group leaves {kept * of_group} experts"
            raise ValueError(f"num_experts_per_tok is {c.num_experts_per_tok}, and {left}")
    width = c.moe_intermediate_size
    return replace(
        mixture(c, name, width, renormalised=c.norm_topk_prob),
        sigmoid=True,
        correction=f"{name}.gate.e_score_correction_bias",
        groups=(groups, kept),
        factor=c.routed_scaling_factor,
        shared=gated(c, f"{name}.shared_experts", width=c.n_shared_experts * width) if c.n_shared_experts else None,
    )
