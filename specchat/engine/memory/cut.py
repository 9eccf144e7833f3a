"""Targets whose layers can lie on two GPUs."""

from specchat.engine.recipe import Recipe

ON_TWO_GPUS = "the target's layers lie on two GPUs"
"""Reason against what reads hidden states between layers, or runs some of them."""


def cuts(recipe: Recipe) -> list[int]:
    """Numbers of first layers that may lie on another GPU than the rest, ascending."""
    least = [len(recipe.layers) if layer.share is None else layer.share for layer in recipe.layers]
    return [first for first in range(1, len(recipe.layers)) if min(least[first:]) >= first]


def cannot_cut(recipe: Recipe) -> str:
    """Reason why the layers of a model do not lie on two GPUs, in words; empty if they can."""
    if recipe.per_layer is not None:
        return "all layers of this family take inputs by token beside the hidden states"
    return "" if cuts(recipe) else "no two of its layers can be on different GPUs"
