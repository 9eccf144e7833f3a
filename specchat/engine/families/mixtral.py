"""Mixtral (Jiang et al. 2024): Llama's layers with a mixture of experts as MLP; they may have a window."""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.family import Family, block, decoder, within
from specchat.engine.families.parts.settings import Theta
from specchat.engine.foreign import MaybeCount, Number
from specchat.engine.recipe import Layer, Recipe


class MixtralSettings(ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 8
    num_key_value_heads: MaybeCount = 8
    rms_norm_eps: Number = 1e-5
    rope_theta: Theta = 1e6
    num_experts_per_tok: Chosen = 2


def recipe(c: MixtralSettings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        plain = within(c.sliding_window, block(c, prefix))
        experts = mixture(c, f"{prefix}.mlp", c.intermediate_size, renormalised=True)
        return replace(plain, feed=experts)

    return decoder(c, layer)


FAMILY = Family("mixtral", "Mixtral", recipe, MixtralSettings)
