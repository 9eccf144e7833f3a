"""Tests at load which passes of llama.cpp are row-invariant, and finds a padding that makes them so.

llama.cpp selects kernels by the number of rows, and each kernel rounds sums differently. If a few more rows make all
rows equal, passes are padded to that number; a single row may still run alone (`lone.py`). Otherwise the difference is
measured, and choices closer than it are made again by one row alone (`decoding/guard.py`).

Products of quantised weights round their inputs to few bits. That hides most differences of the attention before them
and enlarges the rest. So a single row of quantised weights, which uses different kernels on a processor, is never taken
as equal, however many comparisons agree, and no error measured on it is trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

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
from specchat.engine.gguf.lone import lone_error
from specchat.engine.gguf.model import UNEVEN_BLOCK, GgufModel, Padding

MOST_PADDING = 4
"""Largest padding of a single row; a larger one would slow plain decoding too much."""
SHIFT_TOKENS = 5
"""Distance between two passes of MOST_ROWS, which gives each token another row."""
COMPARED_TOKENS = MOST_ROWS + SHIFT_TOKENS
"""Tokens of one comparison."""
STRIDE_TOKENS = 40
LEAST_CONTEXT = STRIDE_TOKENS + COMPARED_TOKENS
MAX_POSITION = 600
"""Distance between comparisons, and position of the last: some kernels serve long texts only, and a difference that
quantised products hide shows in one row of many."""
SLOW_S = 0.1
SLOW_COUNTS, SLOW_PASSES = (1, 2, 4, 8, MOST_ROWS), 4
"""Row counts, and passes of each, to compare if MOST_ROWS take longer than SLOW_S. Other counts are padded."""


@dataclass(frozen=True)
class PaddingProof:
    """Result of the test.

    Attributes:
        padding: rows of a pass by its tokens.
        error: bound on the difference of a logit between passes; 0 if padded rows are equal.
        alone: a single row runs unpadded, and only it differs.
        drafts: False for a recurrent model, which is not tested.
    """

    padding: Padding
    error: float
    alone: bool = False
    drafts: bool = True

    @property
    def exactness(self) -> str:
        if not self.drafts:
            return ONE_BY_ONE
        if self.alone:
            several = f"passes of {self.padding[1]} to {MOST_ROWS} rows compared bit for bit"
            again = f"choices closer than {self.error:.1g} in a logit are made again by {self.padding[1]}"
            return f"row-invariant: {several}; one row goes alone, and {again}"
        if self.error:
            return f"{checked(self.error)}; {UNEVEN_BLOCK} tokens of a chat are kept at a time"
        return ALIKE if self.padding[1] == 1 else f"{ALIKE}, one row going as {self.padding[1]}"


def prove(model: GgufModel) -> PaddingProof:
    """Compare passes of 1 to MOST_ROWS rows at several positions. The cache's content is lost.

    Raises:
        ModelError: the context is too short.
    """
    if model.context < LEAST_CONTEXT:
        raise ModelError(short_context(str(model.file.path), model.context, model.file.max_context, LEAST_CONTEXT))
    unpadded = model.padding = tuple(range(MOST_ROWS + 1))
    if model.file.recurrent:
        return PaddingProof(unpadded, 0.0, drafts=False)
    tokens = pass_tokens(min(MAX_POSITION + COMPARED_TOKENS, model.context), model.vocab)
    slow = _seconds(model, tokens) > SLOW_S
    counts = SLOW_COUNTS if slow else range(1, MOST_ROWS + 1)
    agrees, error = [rows == 0 or rows in counts for rows in range(MOST_ROWS + 1)], 0.0
    begun, written = perf_counter(), 0
    for place in range(STRIDE_TOKENS if slow else 0, len(tokens) - COMPARED_TOKENS + 1, STRIDE_TOKENS):
        if place > written:
            model.write(tokens[written:place], written)
        written = place
        whole = model.forward(tokens[place : place + MOST_ROWS], place).clone()
        for rows in counts:
            differs = _differs(model, tokens, place, whole, rows, SLOW_PASSES if slow else MOST_ROWS)
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
    """Seconds of the second pass of MOST_ROWS; the first warms up."""
    for _ in range(2):
        started = perf_counter()
        model.forward(tokens[:MOST_ROWS], 0)
    return perf_counter() - started


def _differs(model: GgufModel, tokens: Sequence[int], place: int, whole: Tensor, rows: int, passes: int) -> float:
    """Largest difference between `whole`, the logits of MOST_ROWS tokens from `place` on, and passes of `rows`.

    A second pass of MOST_ROWS begins SHIFT_TOKENS later.
    """
    differs = 0.0
    if rows == MOST_ROWS:
        model.write(tokens[place : place + SHIFT_TOKENS], place)
    starts = range(0, MOST_ROWS - rows + 1, rows)[:passes] if rows < MOST_ROWS else (SHIFT_TOKENS,)
    for at in starts:
        made = model.forward(tokens[place + at : place + at + rows], place + at)
        differs = max(differs, _difference(made[: MOST_ROWS - at], whole[at : at + rows]))
    return differs


def _difference(a: Tensor, b: Tensor) -> float:
    return 0.0 if torch.equal(a, b) else max(float((a - b).abs().max()), torch.finfo(torch.float32).tiny)
