"""What a model that drafts a chain in one go must know of the step it drafts for."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Going(NamedTuple):
    """How tokens are chosen, and where the chain ends.

    Scores are logits over a temperature, and nothing else is done to them; 0 takes the largest. The noise is the one
    that `coupled` acceptance draws with (`decoding/noise.py`).
    """

    limit: int
    vocab: int
    """Columns of the logits that count."""
    temperature: float
    seed: int
    """In 64 bits."""
    shares: NDArray[np.float64]
    """[3, places]: upper bounds of probabilities; how often a token stays whose probability lies there; how often the
    one after it does. `decoding/length_policy.py` counts them."""
    chance: float
    """That all which was drafted before stays."""
    least: float
    """The chain ends where the chance, with the next token's, is less."""
    ends: NDArray[np.int64] = np.empty(0, np.int64)
    """Tokens after which nothing comes."""
