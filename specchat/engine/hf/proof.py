"""Whether passes of several tokens come out as one token after the other does, found by trying when a model is loaded.

Products and attention sum in another order for another number of rows. How far rows are apart is measured, and choices
as close as that are made again by one row alone (`decoding/guard.py`). A network that is much further apart forgets
something between passes, or remembers what was taken back: then nothing is drafted.
"""

from dataclasses import dataclass
from time import perf_counter

import torch

from specchat.clean import one_line
from specchat.engine.decoding.passes import ALIKE, BUDGET_S, MOST_ROWS, ONE_BY_ONE, SAFETY, checked, text
from specchat.engine.errors import ModelError
from specchat.engine.hf.model import HfModel
from specchat.engine.out_of_memory import ran_out

COUNTS = (1, 2, 3, 5, 8)
"""Rows of the passes that are compared with those of MOST_ROWS."""
PLACES = (1, 9, 40, 64, 150, 320)
"""Tokens before a comparison."""
FINE, COARSE = 0.01, 0.35
"""How far rows are apart at most in float32 and in less, in standard deviations of a row's logits."""


@dataclass(frozen=True)
class Proof:
    """`error` is what a logit may differ by, 0 where rows are alike; `unfit` says why nothing can be drafted, or ""."""

    error: float = 0.0
    unfit: str = ""

    @property
    def words(self) -> str:
        if self.unfit:
            return ONE_BY_ONE
        return checked(self.error) if self.error else ALIKE


def prove(model: HfModel) -> Proof:
    """Compare passes; the model holds nothing of worth afterwards, and reads alone where it cannot do otherwise.

    Raises:
        ModelError: transformers cannot run it, or the context is too short for trying.
    """
    if model.context < PLACES[0] + MOST_ROWS:
        raise ModelError(
            f"{model.label}: a context of {model.context} tokens is too short; give {PLACES[0] + MOST_ROWS}."
        )
    try:
        error, spread = _apart(model)
    except Exception as failed:
        if ran_out(failed):
            raise
        unfit = "it takes no other cache than its own, of which no draft can be taken back"
    else:
        most = FINE if model.network.dtype == torch.float32 and not _quantised(model) else COARSE
        if error <= most * spread:
            return Proof(SAFETY * error)
        unfit = "several tokens at once do not come out as one after the other does"
    for own in (True, False):
        model.read_alone(own)
        if not (failure := _failure(model)):
            return Proof(unfit=unfit)
    raise ModelError(f"{model.label} cannot be run: transformers says: {failure}")


def _failure(model: HfModel) -> str:
    """What transformers says of reading two tokens and one more; "" where that works."""
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


def _apart(model: HfModel) -> tuple[float, float]:
    """The largest difference of a logit, and the standard deviation of the logits of a row."""
    length = min(PLACES[-1] + MOST_ROWS, model.context)
    tokens = text(length, model.vocab)
    error, spread, written, begun = 0.0, 0.0, 0, perf_counter()
    for place in PLACES:
        if place + MOST_ROWS > length or (place > PLACES[1] and perf_counter() - begun > BUDGET_S):
            break
        model.write(tokens[written:place], written)
        written = place
        whole = model.forward(tokens[place : place + MOST_ROWS], place)
        spread = max(spread, float(whole.std(-1).max()))
        for rows in COUNTS:
            for at in range(0, MOST_ROWS - rows + 1, rows):
                made = model.forward(tokens[place + at : place + at + rows], place + at)
                error = max(error, float((made - whole[at : at + rows]).abs().max()))
    return error, spread
