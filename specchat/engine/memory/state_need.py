"""Sizes of what is held of recurrent states, for plans too."""

from specchat.engine.memory.vectors import LANES
from specchat.engine.recipe import Delta

BACK = 64
"""Tokens before a pass whose entries stay, to roll a text back: more than those of a draft and a trial of SWIFT."""
SLACK = 16
"""Entries beyond them before the oldest are folded."""
SLOTS = 112
"""Entries of a log. A pass over more tokens than fit beside BACK others is of a text that stays."""
PLANES = 2
"""States before the first entry, and those before the last pass."""
CHECKPOINTS = 3
"""States that are held at the ends of turns: a text that is rolled back further goes on from one of them."""


def width(of: Delta) -> int:
    """Values of an entry of a key head: key, updates, inputs of the convolution and decays, in whole vectors."""
    return -(-of.entry // of.key_heads // LANES) * LANES


def room(of: Delta) -> int:
    """Values of a thread's workspace in the compiled pass: an entry and a state of one head."""
    return width(of) + of.key_dim * of.value_dim


def held(of: Delta) -> int:
    """Values of a layer's states, checkpoints and log."""
    checkpoint = of.state + (of.taps - 1) * of.key_heads * width(of)
    return PLANES * of.state + SLOTS * of.key_heads * width(of) + CHECKPOINTS * checkpoint
