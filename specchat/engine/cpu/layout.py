"""How rows follow each other, as the compiled pass takes it."""

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.model.tree_layout import Layout


class PassSpans(NamedTuple):
    """The arguments `runs` and `before` of `passes.layers`; the rows end `reach` slots after the start."""

    spans: NDArray[np.int64]
    before: NDArray[np.int64]
    reach: int


def laid_out(runs: Layout) -> PassSpans:
    """Rows in runs."""
    ends = list(accumulate(map(len, runs.ancestors), initial=0))
    spans = zip(runs.depths, runs.lengths, ends, ends[1:], strict=False)
    before = [row for rows in runs.ancestors for row in rows]
    reach = max(depth + length for depth, length in zip(runs.depths, runs.lengths, strict=True))
    return PassSpans(np.array(list(spans), np.int64), np.array(before, np.int64), reach)
