"""Vector sizes of the compiled pass, apart from numba, which plans do without."""

from specchat.engine.model.config import ModelConfig
from specchat.engine.recipe import Recipe

LANES = 16
"""float32 values of a vector."""
FEW = 8
"""Fewest panels, vectors of outputs, that every processor handles at a time."""
QUERIES = 4
"""Queries that attend to a key together."""
SMALL = 4_000_000
"""Products of a pass up to which one thread is faster than several."""
BRIEF = 30_000_000
"""Weights of a model up to which one compiled call is faster than several threads with Python between passes."""


def unsupported(recipe: Recipe) -> str:
    """Reason why the compiled pass does not support a model; empty where it does."""
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
    """True where the compiled pass supports a model."""
    return not unsupported(config.recipe)


def panels_for(outputs: int) -> int:
    """Panels that hold `outputs` values."""
    return max(FEW, -(-outputs // LANES))


def attention_room(slots: int, size: int) -> int:
    """float32 values of attention's workspace, for `slots` positions of the cache and heads of `size`."""
    return (1 + 2 * QUERIES) * size + QUERIES * (slots + LANES)


def workers(config: ModelConfig, most: int, rows: int = 1) -> int:
    """Useful threads, of `most`, for a pass of a model over `rows` rows."""
    return most if rows * config.parameters() > SMALL else 1


def brief(config: ModelConfig) -> bool:
    """True where one thread drafts a chain in one call, even if there are more."""
    return config.parameters() <= BRIEF
