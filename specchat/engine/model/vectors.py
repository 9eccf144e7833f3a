"""How a model's rows fill the vectors of the compiled pass; here without numba, so that plans can do without."""

from specchat.engine.model.config import ModelConfig
from specchat.engine.recipe import Recipe

LANES = 16
"""float32 numbers of a vector."""
FEW = 8
"""The least panels, vectors of outputs, that every processor can take at a time."""
QUERIES = 4
"""Queries that look at keys together."""
SMALL = 4_000_000
"""Products of a pass that threads would wait for each other in rather than share."""
BRIEF = 30_000_000
"""Weights of a model whose passes take no longer than several threads gain by and Python loses between two of them."""


def unsupported(recipe: Recipe) -> str:
    """Why the compiled pass does not take a model, in words; empty where it does."""
    sizes = {"hidden states": {recipe.hidden}}
    sizes["attention heads"] = {layer.mixer.head_dim for layer in recipe.layers}
    sizes["MLPs"] = {layer.feed.width for layer in recipe.layers}
    for what, found in sizes.items():
        if odd := [size for size in sorted(found) if size % LANES]:
            return f"{what} of {odd[0]} values, not a multiple of {LANES}: not in the compiled pass"
    if any(len({norm.eps for norm in layer.norms}) > 1 for layer in recipe.layers):
        return "norms of a layer with unlike eps: not in the compiled pass"
    return ""


def fits(config: ModelConfig) -> bool:
    """Whether the compiled pass takes a model."""
    return not unsupported(config.recipe)


def panels_for(outputs: int) -> int:
    """Vectors that hold so many outputs, or weights for them."""
    return max(FEW, -(-outputs // LANES))


def attention_room(slots: int, size: int) -> int:
    """float32 numbers that attention takes for itself, over a cache of so many slots and heads of `size`."""
    return (1 + 2 * QUERIES) * size + QUERIES * (slots + LANES)


def workers(config: ModelConfig, most: int, rows: int = 1) -> int:
    """The most threads that are of use to a pass of a model of this shape over so many rows, where there are `most`."""
    return most if rows * config.parameters() > SMALL else 1


def brief(config: ModelConfig) -> bool:
    """Whether one thread drafts a chain by a model of this shape in one call, however many there are."""
    return config.parameters() <= BRIEF
