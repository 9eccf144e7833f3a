"""Tree-attention layout as arrays for the compiled pass."""

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.model.runs import Runs


class Layout(NamedTuple):
    """Arguments `spans` and `ancestors` of `passes.layers`; the rows end `reach` positions after the start."""

    spans: NDArray[np.int64]
    before: NDArray[np.int64]
    reach: int


def laid_out(runs: Runs) -> Layout:
    """Convert a layout."""
    ends = list(accumulate(map(len, runs.before), initial=0))
    spans = zip(runs.depths, runs.lengths, ends, ends[1:], strict=False)
    before = [row for rows in runs.before for row in rows]
    reach = max(depth + length for depth, length in zip(runs.depths, runs.lengths, strict=True))
    return Layout(np.array(list(spans), np.int64), np.array(before, np.int64), reach)
