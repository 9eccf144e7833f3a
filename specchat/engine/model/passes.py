"""Rows of a pass, sub-layers that it skips, and the parameters of a draft chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.model.tree_layout import Layout


@dataclass(frozen=True)
class Skip:
    """Sub-layers that a forward pass skips (SWIFT): indices of layers, for attention and for the MLP."""

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()


NOTHING = Skip()


class PassRows(NamedTuple):
    """Rows of a pass: consecutive tokens from position `start` on, or with `layout` nodes of a tree after the text.

    With `until` they are some of a picture whose rows attend to each other, up to that position.
    """

    tokens: Sequence[int]
    start: int
    layout: Layout | None = None
    until: int = 0


class ChainParameters(NamedTuple):
    """Choice of a chain's tokens, and its end.

    Scores are logits over a temperature, without other processing; temperature 0 takes the largest. The noise is the
    one that `coupled` acceptance draws with (`decoding/noise.py`).
    """

    limit: int
    vocab: int
    """Columns of the logits that count."""
    temperature: float
    seed: int
    """64 bits."""
    calibration: NDArray[np.float64]
    """[3, bins]: upper bounds of the draft's probability, and the acceptance of a token in each bin and of the token
    after it. `decoding/length_policy.py` counts them."""
    prefix_acceptance: float
    """Probability that every earlier draft token is accepted."""
    min_acceptance: float
    """The chain ends where the probability that its next token is accepted falls below this."""
    ends: NDArray[np.int64] = np.empty(0, np.int64)
    """Tokens that end the text."""
