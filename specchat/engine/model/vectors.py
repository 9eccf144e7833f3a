"""How a model's rows fill the vectors of the compiled pass; here without numba, so that plans can do without."""

from specchat.engine.model.config import ModelConfig

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


def fits(config: ModelConfig) -> bool:
    """Whether whole vectors hold the rows of a model of this shape."""
    return all(size % LANES == 0 for size in (config.hidden, config.head_dim, config.intermediate))


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
