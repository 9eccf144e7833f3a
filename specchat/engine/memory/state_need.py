"""Sizes of what is held of recurrent states, for plans too."""

from specchat.engine.memory.vectors import LANES, panels_for, whole_vectors
from specchat.engine.recipe import Delta

BACK = 64
"""Tokens before a pass whose entries stay, to roll a text back: more than those of a draft and a trial of SWIFT."""
SLACK = 16
"""Entries beyond them before the oldest are folded."""
SLOTS = 112
"""Entries of a log. A pass over more tokens than fit beside BACK others is of a text that stays."""
PLANES = 2
"""States before the first entry, and those before the last pass."""
TOGETHER = 8
"""Most value heads of a piece, which one thread steps."""
CHECKPOINTS = 3
"""States that are held at the ends of turns: a text that is rolled back further goes on from one of them."""


def pieces(of: Delta) -> int:
    """Key heads, or equal parts of the value heads that share one, each with entries of its own in the log."""
    most = range(-(-of.sharing // TOGETHER), of.sharing + 1)
    return of.key_heads * next(parts for parts in most if of.sharing % parts == 0)


def width(of: Delta) -> int:
    """Values of an entry of a piece: key, updates, inputs of the convolution and decays, in whole vectors."""
    return -(-(3 * of.key_dim + of.value_heads // pieces(of) * (2 * of.value_dim + 1)) // LANES) * LANES


def gates_width(of: Delta) -> int:
    """Values of a row of the compiled pass for gates: outputs of their product, or decays alone."""
    return LANES * sum(map(panels_for, of.gates.outputs)) if of.gates else whole_vectors(of.value_heads)


def room(of: Delta) -> int:
    """Values of a thread's workspace in the compiled pass: an entry and a state of one head."""
    return width(of) + of.key_dim * of.value_dim


def held(of: Delta) -> int:
    """Values of a layer's states, checkpoints and log."""
    entry = pieces(of) * width(of)
    return PLANES * of.state + SLOTS * entry + CHECKPOINTS * (of.state + (of.taps - 1) * entry)
