"""Tests at load how far passes of several tokens differ from passes of one.

Products and attention sum in an order that depends on the number of rows. The difference is measured, and choices
closer than it are made again by one row alone (`decoding/guard.py`). A much larger difference means that the network
loses state between passes, or keeps state that was rolled back. Such a network supports no drafts.
"""

import torch

from specchat.clean import one_line
from specchat.engine.decoding.row_invariance import MOST_ROWS, SAFETY, Proof, compare, require_context
from specchat.engine.errors import ModelError
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.hf.model import HfModel

ROW_COUNTS = (1, 2, 3, 5, 8)
"""Passes to compare with one of MOST_ROWS."""
POSITIONS = (1, 9, 40, 64, 150, 320)
LEAST_CONTEXT = POSITIONS[0] + MOST_ROWS
MAX_ERROR_FLOAT32, MAX_ERROR_LOWER = 0.01, 0.35
"""Largest rounding difference in float32 and in lower precision, in standard deviations of a row's logits."""


def prove(model: HfModel, longest: int | None) -> Proof:
    """Compare passes, and let the model read one token a pass if they differ. The cache's content is lost.

    `longest` is the limit of its context that its files state, if they do.

    Raises:
        ModelError: transformers cannot run the model, or the context is too short for the test.
    """
    require_context(model, longest, LEAST_CONTEXT)
    positions = [start for start in POSITIONS if start + MOST_ROWS <= model.context]
    try:
        differences = compare(model, positions, ROW_COUNTS, MOST_ROWS, certain=2)
    except Exception as failed:
        if ran_out(failed):
            raise
        reason = "it takes no other cache than its own, of which no draft can be taken back"
    else:
        most = MAX_ERROR_FLOAT32 if model.network.dtype == torch.float32 and not _quantised(model) else MAX_ERROR_LOWER
        if differences.largest <= most * differences.spread:
            return Proof(SAFETY * differences.largest)
        reason = "several tokens at once do not come out as one after the other does"
    for own in (True, False):
        model.read_alone(own)
        if not (failure := _failure(model)):
            return Proof(unsupported=reason)
    raise ModelError(f"{model.label} cannot be run: transformers says: {failure}")


def _failure(model: HfModel) -> str:
    """Error message of reading two tokens and one more, or ""."""
    try:
        model.write([0, 1], 0)
        model.next_logits(0, 2)
        model.next_logits(0, 3)
    except Exception as failed:
        if ran_out(failed):
            raise
        return one_line(str(failed), 200) or type(failed).__name__
    return ""


def _quantised(model: HfModel) -> bool:
    return getattr(model.network.config, "quantization_config", None) is not None
