"""Bytes that a step of a training holds, from the shapes of a target, for the size that `plan.py` estimates by."""

from specchat.engine.recipe import Attention, Layer
from specchat.tune.learner import SCORES
from specchat.tune.replies import LONGEST_REPLY
from specchat.tune.rows import LONGEST
from specchat.tune.training import ROWS

TEXT_TOKENS, REPLY_TOKENS = ROWS * LONGEST, ROWS * LONGEST_REPLY
"""Most tokens of the texts of a step, and of their replies."""
_FLOAT = 4
_SCORES_HELD, _SCORES_KEPT = 5, 3
"""Tensors of scores that are held at a time: logits, their softmax, and gradients; and those kept for each place."""


def state_bytes(layers: int, hidden: int) -> int:
    """Bytes of the target's states after so many layers: of each text, and padded."""
    return 2 * _FLOAT * layers * TEXT_TOKENS * hidden


def score_bytes(vocab: int, tables: int, places: int = 1, rows: int = REPLY_TOKENS) -> int:
    """Bytes of `tables` over `vocab` tokens for all replies, and of the scores of `rows` tokens at several `places`.

    More than SCORES are computed again for their gradients, a block at a time.
    """
    scores = rows * vocab
    held = _SCORES_HELD * SCORES if scores > SCORES else (_SCORES_HELD + _SCORES_KEPT * places) * scores
    return _FLOAT * (held + tables * REPLY_TOKENS * vocab)


def layer_bytes(layer: Layer, rows: int, seen: int, scores: int = 4) -> int:
    """Bytes that a layer holds for the gradients of `rows` which attend to `seen` positions each.

    `scores` is the number of tensors that it holds of a score for each of these.
    """
    heads = layer.mixer.heads if isinstance(layer.mixer, Attention) else 0
    outputs = sum(sum(matrix.outputs) for matrix in layer.products)
    return _FLOAT * rows * (2 * outputs + scores * heads * seen)
