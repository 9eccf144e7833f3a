"""Memory of recurrent states on a GPU, and reasons why a model's do not run there; without torch or Triton."""

from collections.abc import Iterator

from specchat.engine.kernels.gpu_shapes import PASS_ROWS, STATE_NUMBERS, STATE_SLOTS, state_columns
from specchat.engine.memory.state_need import CHECKPOINTS, PLANES
from specchat.engine.recipe import Delta, Recipe

FLOATS = 4
"""Values of float32 between 16-byte boundaries."""


def width(of: Delta) -> int:
    """Values of a token's entry in the log, in whole vectors."""
    return -(-of.entry // FLOATS) * FLOATS


def held(recipe: Recipe) -> int:
    """Bytes of the states of all layers, their positions and their logs."""
    slices = (
        (of, of.value_heads * (of.value_dim // state_columns(of.key_dim, of.value_dim))) for of in recipe.recurrent
    )
    return sum(4 * (PLANES * (of.state + programs) + STATE_SLOTS * width(of)) for of, programs in slices)


def checkpoints(recipe: Recipe) -> int:
    """Bytes of checkpoints, which are held in main memory."""
    return CHECKPOINTS * sum(4 * (of.state + (of.taps - 1) * of.channels) for of in recipe.recurrent)


def buffers(of: Delta) -> int:
    """Bytes of what a pass puts between the kernels of recurrent layers, and of the paths of a chain."""
    row = width(of) + of.key_heads * of.key_dim + of.value_heads * (of.value_dim + 1)
    return PASS_ROWS * (4 * row + 8)


def unsupported(recipe: Recipe) -> Iterator[str]:
    """Features of recurrent layers that the GPU kernels do not run, in words."""
    mixers = recipe.recurrent
    if len({(of.key_heads, of.value_heads, of.key_dim, of.value_dim, of.taps) for of in mixers}) > 1:
        yield "recurrent layers of unlike shapes"
    for of in mixers[:1]:
        columns, most = state_columns(of.key_dim, of.value_dim), STATE_NUMBERS // 8
        odd = any(size & (size - 1) for size in (of.key_dim, columns)) or of.value_dim % columns
        if odd or not 8 <= min(of.key_dim, of.value_dim) <= max(of.key_dim, of.value_dim) <= most:
            yield f"recurrent heads of {of.key_dim} by {of.value_dim} values"
        if of.taps > 8:
            yield f"a convolution over {of.taps} tokens"
