"""Bytes that a step of a training holds, from the shapes of a target, for the size that `plan.py` estimates by."""

from specchat.engine.recipe import Attention, Layer
from specchat.tune.learner import SCORES
from specchat.tune.replies import LONGEST_REPLY
from specchat.tune.rows import LONGEST
from specchat.tune.training import ROWS

TEXT_TOKENS, REPLY_TOKENS = ROWS * LONGEST, ROWS * LONGEST_REPLY
"""Most tokens of the texts of a step, and of their replies."""
_FLOAT = 4
_SCORES_HELD = 5
"""Tensors of scores that are held at a time: logits, their softmax, and gradients."""


def state_bytes(layers: int, hidden: int) -> int:
    """Bytes of the target's states after so many layers: of each text, and padded."""
    return 2 * _FLOAT * layers * TEXT_TOKENS * hidden


def score_bytes(vocab: int, wanted: int) -> int:
    """Bytes of a block of scores over `vocab` tokens, and of `wanted` whole tables of them."""
    block = min(SCORES, REPLY_TOKENS * vocab)
    return _FLOAT * (_SCORES_HELD * block + wanted * REPLY_TOKENS * vocab)


def layer_bytes(layer: Layer, rows: int, seen: int) -> int:
    """Bytes that a layer holds for the gradients of `rows` which attend to `seen` positions each."""
    heads = layer.mixer.heads if isinstance(layer.mixer, Attention) else 0
    outputs = sum(sum(matrix.outputs) for matrix in layer.products)
    return _FLOAT * rows * (2 * outputs + 4 * heads * seen)
