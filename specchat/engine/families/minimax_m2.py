"""MiniMax-M2 (MiniMax 2025): norms over all queries and all keys, a part of heads rotated, experts by sigmoids."""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.family import Family, block, decoder, head_norms, partly
from specchat.engine.families.parts.settings import Theta
from specchat.engine.foreign import MaybeCount
from specchat.engine.recipe import Layer, Recipe


class MiniMaxM2Settings(ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 256
    num_key_value_heads: MaybeCount = 8
    head_dim: MaybeCount = 128
    rope_theta: Theta = 5e6
    rotary_dim: MaybeCount = None
    """Values of a head that are rotated."""
    num_experts_per_tok: Chosen = 8


def recipe(c: MiniMaxM2Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        plain, name = block(c, prefix), f"{prefix}.mlp"
        whole = plain.attention
        turned = partly(c, whole, c.rotary_dim / whole.head_dim if c.rotary_dim else 1.0)
        experts = mixture(c, name, c.intermediate_size, renormalised=True)
        return replace(
            plain,
            mixer=head_norms(c, turned, f"{prefix}.self_attn", together=True),
            feed=replace(experts, sigmoid=True, correction=f"{name}.e_score_correction_bias"),
        )

    return decoder(c, layer)


FAMILY = Family("minimax_m2", "MiniMax-M2", recipe, MiniMaxM2Settings)
