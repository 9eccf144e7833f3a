"""A model as a recipe: computation of its layers, and their tensors in a checkpoint.

Families write recipes, executors interpret them. Weights, caches, buffers, the memory plan and exports are derived from
recipes. Torch is not imported here, since the app imports this.
"""

from specchat.engine.recipe.feeds import MOST_EXPERTS, Activation, Apart, Experts, Gated
from specchat.engine.recipe.mixers import LENGTH_EPS, Attention, Delta, Latent, Selective, ShortConv
from specchat.engine.recipe.model import Layer, LayerInput, PerLayer, Recipe
from specchat.engine.recipe.parts import Matrix, Norm, Rope, Unsupported

__all__ = [
    "LENGTH_EPS",
    "MOST_EXPERTS",
    "Activation",
    "Apart",
    "Attention",
    "Delta",
    "Experts",
    "Gated",
    "Latent",
    "Layer",
    "LayerInput",
    "Matrix",
    "Norm",
    "PerLayer",
    "Recipe",
    "Rope",
    "Selective",
    "ShortConv",
    "Unsupported",
]
