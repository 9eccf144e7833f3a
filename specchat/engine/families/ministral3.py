"""Ministral 3 (Mistral AI 2025): Llama's layers with YaRN, and queries that grow with their position."""

from dataclasses import replace

from specchat.engine.families import llama
from specchat.engine.families.parts.family import Family, within
from specchat.engine.families.parts.settings import Scaling, Settings
from specchat.engine.foreign import MaybeCount, Number
from specchat.engine.recipe import Recipe

ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""The rotary embeddings where a file names none."""


class Ministral3Settings(Settings):
    head_dim: MaybeCount = 128
    rms_norm_eps: Number = 1e-5


def recipe(c: Ministral3Settings) -> Recipe:
    c = c.model_copy(update={"rope_parameters": c.scaling or ROPE})
    made, options = llama.recipe(c), Scaling.model_validate(c.scaling)
    beta, length = options.llama_4_scaling_beta or 0.0, options.original_max_position_embeddings or 1.0
    tempered = (replace(one, mixer=replace(one.attention, temper=(beta, length))) for one in made.layers)
    return replace(made, layers=tuple(within(c.sliding_window, one) for one in tempered))


FAMILY = Family("ministral3", "Ministral 3", recipe, Ministral3Settings, also_seeing=("mistral3",))
