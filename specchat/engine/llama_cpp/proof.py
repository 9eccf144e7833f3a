"""Tests at load which passes of llama.cpp are row-invariant, and finds a padding that makes them so.

llama.cpp selects kernels by the number of rows, and each kernel rounds sums differently. If a few more rows make all
rows equal, passes are padded to that number; a single row may still run alone (`lone.py`). Otherwise the difference is
measured, and choices closer than it are made again by one row alone (`decoding/guard.py`).

Products of quantised weights round their inputs to few bits. That hides most differences of the attention before them
and enlarges the rest. So a single row of quantised weights, which uses different kernels on a processor, is never taken
as equal, however many comparisons agree, and no error measured on it is trusted.
"""

from collections.abc import Sequence
from time import perf_counter

from specchat.engine.decoding.row_invariance import (
    COMPARED_TOKENS,
    MOST_ROWS,
    SAFETY,
    UNPADDED,
    Padding,
    Proof,
    compare,
    pass_tokens,
    require_context,
)
from specchat.engine.llama_cpp.lone import lone_error
from specchat.engine.llama_cpp.model import GgufModel

MOST_PADDING = 4
"""Largest padding of a single row; a larger one would slow plain decoding too much."""
STRIDE_TOKENS = 40
LEAST_CONTEXT = STRIDE_TOKENS + COMPARED_TOKENS
MAX_POSITION = 600
"""Distance between comparisons, and position of the last: some kernels serve long texts only, and a difference that
quantised products hide shows in one row of many."""
SLOW_S = 0.1
SLOW_COUNTS, SLOW_PASSES = (1, 2, 4, 8, MOST_ROWS), 4
"""Row counts, and passes of each, to compare if MOST_ROWS take longer than SLOW_S. Other counts are padded."""
RUNNING = "it keeps a running state, of which llama.cpp takes nothing back"


def prove(model: GgufModel) -> Proof:
    """Compare passes of 1 to MOST_ROWS rows at several positions. The cache's content is lost.

    Raises:
        ModelError: the context is too short.
    """
    require_context(model, model.file.max_context, LEAST_CONTEXT)
    model.padding = UNPADDED
    if model.file.recurrent:
        return Proof(unsupported=RUNNING)
    slow = _seconds(model) > SLOW_S
    last = min(MAX_POSITION, model.context - COMPARED_TOKENS)
    positions = range(STRIDE_TOKENS if slow else 0, last + 1, STRIDE_TOKENS)
    counts = SLOW_COUNTS if slow else range(1, MOST_ROWS + 1)
    differences = compare(model, positions, counts, SLOW_PASSES if slow else MOST_ROWS, certain=1)
    error = differences.largest
    agrees = [differences.by_rows.get(rows) == 0 or rows == 0 for rows in range(MOST_ROWS + 1)]
    if model.rounds:
        agrees[1] = False
    padding = least(agrees)
    if not agrees[-1] or padding[1] > MOST_PADDING:
        return Proof(SAFETY * error)
    if padding[1] > 1 and not model.rounds:
        model.padding = padding
        off = lone_error(model, error)
        model.padding = UNPADDED
        if off is not None:
            return Proof(off, padding, alone=True)
    return Proof(0.0, padding)


def least(agrees: Sequence[bool]) -> Padding:
    """Every count goes up to the next one that agrees; `agrees` is of 0, 1, ... rows, and the last one does."""
    counts = range(len(agrees))
    return tuple(next((more for more in counts[rows:] if agrees[more]), len(agrees) - 1) for rows in counts)


def _seconds(model: GgufModel) -> float:
    """Seconds of the second pass of MOST_ROWS; the first warms up."""
    tokens = pass_tokens(MOST_ROWS, model.vocab)
    for _ in range(2):
        started = perf_counter()
        model.forward(tokens, 0)
    return perf_counter() - started
