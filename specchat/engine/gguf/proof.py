"""Whether a row comes out alike in passes of any number of rows, found by trying when a model is loaded.

llama.cpp takes other kernels for one row than for several, and on a GPU for a few more than for many: sums are then
rounded otherwise. Where a few more rows make the rows alike, passes are padded to so many; one row may still go alone
(`lone.py`). Where they do not, how far rows are apart is measured, and choices as close as that are made again by one
row alone (`decoding/guard.py`).

Products of quantised weights round what they take to few bits. That hides nearly all differences of the attention
before them, and makes the few that it does not hide large: of one row, whose kernels are others for certain on a
processor, being alike in a few hundred places says nothing, nor does what one row was seen to be off by.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from specchat.engine.decoding.passes import ALIKE, BUDGET_S, MOST_ROWS, ONE_BY_ONE, SAFETY, checked, text
from specchat.engine.errors import ModelError
from specchat.engine.gguf.lone import lone_error
from specchat.engine.gguf.model import GgufModel, Padding

MOST_PADDING = 4
"""One row is padded to so many at most: more would make plain decoding pay too much for being alike."""
SHIFT = 5
"""How far the second pass of MOST_ROWS lies from the first: a row is then another one of its pass."""
LENGTH = MOST_ROWS + SHIFT
"""Tokens that a comparison needs."""
STRIDE = 40
FAR = 600
"""Tokens from one comparison to the next, and before the last: some kernels are taken for long texts only, and what a
quantised product hides of a difference shows in one row of many."""
SLOW_S = 0.1
FEW, GROUPS = (1, 2, 4, 8, MOST_ROWS), 4
"""Where a pass of MOST_ROWS takes longer than SLOW_S, these counts are compared, in so many passes each; others are
padded to them."""


@dataclass(frozen=True)
class PaddingProof:
    """Passes are padded so; `error` is 0 where rows then are alike, otherwise what they may differ by in a logit.

    Where one row goes `alone`, only it differs. Nothing is compared where nothing is drafted.
    """

    padding: Padding
    error: float
    alone: bool = False
    drafts: bool = True

    @property
    def words(self) -> str:
        if not self.drafts:
            return ONE_BY_ONE
        if self.alone:
            several = f"passes of {self.padding[1]} to {MOST_ROWS} rows compared bit for bit"
            again = f"choices closer than {self.error:.1g} in a logit are made again by {self.padding[1]}"
            return f"row-invariant: {several}; one row goes alone, and {again}"
        if self.error:
            return checked(self.error)
        return ALIKE if self.padding[1] == 1 else f"{ALIKE}, one row going as {self.padding[1]}"


def prove(model: GgufModel) -> PaddingProof:
    """Compare passes of 1 to MOST_ROWS rows at places of a text; the cache holds nothing of worth afterwards.

    Raises:
        ModelError: the context is too short for that.
    """
    if model.context < STRIDE + LENGTH:
        least_context = STRIDE + LENGTH
        raise ModelError(f"{model.file.path}: a context of {model.context} tokens is too short; give {least_context}.")
    unpadded = model.padding = tuple(range(MOST_ROWS + 1))
    if model.file.running:
        return PaddingProof(unpadded, 0.0, drafts=False)
    tokens = text(min(FAR + LENGTH, model.context), model.vocab)
    slow = _seconds(model, tokens) > SLOW_S
    counts = FEW if slow else range(1, MOST_ROWS + 1)
    agrees, error = [rows == 0 or rows in counts for rows in range(MOST_ROWS + 1)], 0.0
    begun, written = perf_counter(), 0
    for place in range(STRIDE if slow else 0, len(tokens) - LENGTH + 1, STRIDE):
        if place > written:
            model.write(tokens[written:place], written)
        written = place
        whole = model.forward(tokens[place : place + MOST_ROWS], place).clone()
        for rows in counts:
            differs = _differs(model, tokens, place, whole, rows, GROUPS if slow else MOST_ROWS)
            agrees[rows] &= differs == 0
            error = max(error, differs)
        if perf_counter() - begun > BUDGET_S:
            break
    if model.rounds:
        agrees[1] = False
    padding = least(agrees)
    if not agrees[-1] or padding[1] > MOST_PADDING:
        return PaddingProof(unpadded, SAFETY * error)
    if padding[1] > 1 and not model.rounds:
        model.padding = padding
        off = lone_error(model, error)
        model.padding = unpadded
        if off is not None:
            return PaddingProof(padding, off, alone=True)
    return PaddingProof(padding, 0.0)


def least(agrees: Sequence[bool]) -> Padding:
    """Every count goes up to the next one that agrees; `agrees` is of 0, 1, ... rows, and the last one does."""
    counts = range(len(agrees))
    return tuple(next((more for more in counts[rows:] if agrees[more]), len(agrees) - 1) for rows in counts)


def _seconds(model: GgufModel, tokens: Sequence[int]) -> float:
    """What a pass of MOST_ROWS takes, the first one left out."""
    for _ in range(2):
        started = perf_counter()
        model.forward(tokens[:MOST_ROWS], 0)
    return perf_counter() - started


def _differs(model: GgufModel, tokens: Sequence[int], place: int, whole: Tensor, rows: int, passes: int) -> float:
    """How far `whole`, the logits of MOST_ROWS tokens from `place` on, are from those of passes of `rows` over them.

    A pass of as many rows begins SHIFT tokens later, and goes on after them.
    """
    differs = 0.0
    if rows == MOST_ROWS:
        model.write(tokens[place : place + SHIFT], place)
    starts = range(0, MOST_ROWS - rows + 1, rows)[:passes] if rows < MOST_ROWS else (SHIFT,)
    for at in starts:
        made = model.forward(tokens[place + at : place + at + rows], place + at)
        differs = max(differs, _apart(made[: MOST_ROWS - at], whole[at : at + rows]))
    return differs


def _apart(a: Tensor, b: Tensor) -> float:
    return 0.0 if torch.equal(a, b) else max(float((a - b).abs().max()), torch.finfo(torch.float32).tiny)
