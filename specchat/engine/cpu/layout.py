"""Tree-attention layout as arrays for the compiled pass."""

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.model.tree_layout import Layout


class PassSpans(NamedTuple):
    """Arguments `spans` and `ancestors` of `passes.layers`; the rows end `reach` positions after the start."""

    spans: NDArray[np.int64]
    ancestors: NDArray[np.int64]
    reach: int


def laid_out(layout: Layout) -> PassSpans:
    """Convert a layout."""
    ends = list(accumulate(map(len, layout.ancestors), initial=0))
    spans = zip(layout.depths, layout.lengths, ends, ends[1:], strict=False)
    ancestors = [row for rows in layout.ancestors for row in rows]
    reach = max(depth + length for depth, length in zip(layout.depths, layout.lengths, strict=True))
    return PassSpans(np.array(list(spans), np.int64), np.array(ancestors, np.int64), reach)
