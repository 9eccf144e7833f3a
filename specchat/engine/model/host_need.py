"""What a model on the host's processor takes beside its weights and its cache, in bytes."""

from typing import Literal

from specchat.engine.model.config import ModelConfig
from specchat.engine.model.vectors import FEW, LANES, attention_room, panels_for, workers

ROWS, VERIFY_ROWS, TREE_ROWS = 128, 16, 64
"""Rows of a prefill pass, rows that get logits, and nodes of a tree."""
CACHE_BLOCK = 64
HEAP = 64 << 20
"""What the heap keeps of the pieces that loading takes and gives back (measured: 50 to 100 MB)."""
ReadAs = Literal["quantised", "half", "whole"]
PACKING: dict[ReadAs, int] = {"quantised": 7, "half": 3, "whole": 6}
"""Bytes a weight that packing a layer's matrix takes beside the result, by what it is read as (measured)."""


def buffers(c: ModelConfig, head_rows: int, threads: int, capacity: int) -> int:
    """What a compiled pass keeps, as `cpu.decoder` makes it, with the nodes of a tree and rows of logits."""
    r = c.recipe
    widest = LANES * max(panels_for(sum(m.outputs)) for m in r.matrices)
    for_one = 2 * ROWS * max(c.hidden, FEW * LANES) + attention_room(capacity, r.deepest)
    own = workers(c, threads, VERIFY_ROWS) * for_one
    logits = VERIFY_ROWS * LANES * panels_for(head_rows)
    turns = 2 * capacity * r.deepest * len(r.ropes)
    return 4 * (turns + ROWS * (c.hidden + widest) + own + TREE_ROWS * r.entry + logits)


def packing_workspace(c: ModelConfig, read_as: ReadAs) -> int:
    """What loading for the compiled pass takes meanwhile, or choosing a step's tokens if that is more."""
    passing = 4 * (ROWS * 2 * c.hidden + VERIFY_ROWS * 2 * c.vocab)
    return HEAP + max(passing, PACKING[read_as] * _largest(c), 2 * c.vocab * c.hidden)


def reference_workspace(c: ModelConfig, capacity: int) -> int:
    """What the reference keeps beside weights and cache, and a pass takes, or loading its largest matrix if more."""
    r = c.recipe
    kept = 2 * capacity * r.deepest * len(r.ropes) + TREE_ROWS * r.entry
    passing = 2 * ROWS * c.hidden + 3 * VERIFY_ROWS * c.vocab
    return HEAP + 4 * (kept + max(passing, c.vocab * c.hidden, 2 * _largest(c)))


def _largest(c: ModelConfig) -> int:
    """Weights of the largest matrix of a layer."""
    return max(sum(m.outputs) * m.inputs for m in c.recipe.matrices)
