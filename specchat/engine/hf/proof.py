"""Tests at load how far passes of several tokens differ from passes of one.

Products and attention sum in an order that depends on the number of rows. The difference is measured, and choices
closer than it are made again by one row alone (`decoding/guard.py`). A much larger difference means that the network
loses state between passes, or keeps state that was rolled back. Such a network supports no drafts.
"""

from dataclasses import dataclass
from time import perf_counter

import torch

from specchat.clean import one_line
from specchat.engine.decoding.passes import (
    ALIKE,
    BUDGET_S,
    MOST_ROWS,
    ONE_BY_ONE,
    SAFETY,
    checked,
    pass_tokens,
    short_context,
)
from specchat.engine.errors import ModelError
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.hf.model import HfModel

ROW_COUNTS = (1, 2, 3, 5, 8)
"""Passes to compare with one of MOST_ROWS."""
POSITIONS = (1, 9, 40, 64, 150, 320)
LEAST_CONTEXT = POSITIONS[0] + MOST_ROWS
MAX_ERROR_FLOAT32, MAX_ERROR_LOWER = 0.01, 0.35
"""Largest rounding difference in float32 and in lower precision, in standard deviations of a row's logits."""


@dataclass(frozen=True)
class Proof:
    """Result of the test.

    Attributes:
        error: bound on the difference of a logit between passes; 0 if rows are equal.
        unsupported: reason why drafts are not supported, or "".
    """

    error: float = 0.0
    unsupported: str = ""

    @property
    def exactness(self) -> str:
        if self.unsupported:
            return ONE_BY_ONE
        return checked(self.error) if self.error else ALIKE


def prove(model: HfModel, longest: int | None) -> Proof:
    """Compare passes, and let the model read one token a pass if they differ. The cache's content is lost.

    `longest` is the limit of its context that its files state, if they do.

    Raises:
        ModelError: transformers cannot run the model, or the context is too short for the test.
    """
    if model.context < LEAST_CONTEXT:
        raise ModelError(short_context(model.label, model.context, longest, LEAST_CONTEXT))
    try:
        error, spread = _differences(model)
    except Exception as failed:
        if ran_out(failed):
            raise
        reason = "it takes no other cache than its own, of which no draft can be taken back"
    else:
        most = MAX_ERROR_FLOAT32 if model.network.dtype == torch.float32 and not _quantised(model) else MAX_ERROR_LOWER
        if error <= most * spread:
            return Proof(SAFETY * error)
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


def _differences(model: HfModel) -> tuple[float, float]:
    """Largest difference of a logit, and largest standard deviation of a row's logits."""
    length = min(POSITIONS[-1] + MOST_ROWS, model.context)
    tokens = pass_tokens(length, model.vocab)
    error, spread, written, begun = 0.0, 0.0, 0, perf_counter()
    for place in POSITIONS:
        if place + MOST_ROWS > length or (place > POSITIONS[1] and perf_counter() - begun > BUDGET_S):
            break
        model.write(tokens[written:place], written)
        written = place
        whole = model.forward(tokens[place : place + MOST_ROWS], place)
        spread = max(spread, float(whole.std(-1).max()))
        for rows in ROW_COUNTS:
            for at in range(0, MOST_ROWS - rows + 1, rows):
                made = model.forward(tokens[place + at : place + at + rows], place + at)
                error = max(error, float((made - whole[at : at + rows]).abs().max()))
    return error, spread
