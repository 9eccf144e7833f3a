"""Features of recipes that no compiled executor supports, neither on the CPU nor on a GPU; the reference runs them."""

from collections.abc import Iterator

from specchat.engine.recipe import Recipe


def uncompiled(recipe: Recipe) -> Iterator[str]:
    """The features of a recipe that only the reference supports, in words."""
    mixers = recipe.attentions
    found = {
        "attention to later tokens": not all(mixer.causal for mixer in mixers),
    }
    return (feature for feature, there in found.items() if there)
