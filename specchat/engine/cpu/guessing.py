"""Nested speculation: a prompt lookup proposes tokens that the draft model verifies in its next pass.

A pass of a small model over four tokens takes little longer than over one. So the pass over the last token also
covers tokens that followed the same tokens before (Saxena 2023). Each one that the model would draft saves a pass
(Spector and Re 2023, "Staged speculative decoding"). The draft does not change.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.simd import inner

KEY, LONGEST = 2, 8
"""Fewest tokens of a match that is used, and most that are compared."""
FEW, MANY = 3, 7
"""Tokens proposed after a short match and after one of LONG_MATCH_TOKENS."""
LONG = 4
KEPT = 0.9
"""Weight of the former estimate after one more proposal."""
LEAST = 0.25
"""Acceptance of proposals' first tokens below which matches of that length propose nothing."""
RETRIED = 0.01
"""Rise of that acceptance each time that nothing is proposed."""


def unknown() -> NDArray[np.float64]:
    """Acceptance to begin with, by the length of a match: float64 [MAX_MATCH_TOKENS + 1]."""
    return np.full(LONGEST + 1, 0.5)


@inner
def guess(said: Any, count: int, most: int, trust: Any) -> tuple[int, int]:
    """Append up to `most` proposed tokens to token_ids[:count]: the ones that followed its longest earlier match.

    Returns:
        length of the match, and number of proposed tokens.
    """
    length, after = 0, 0
    if most <= 0:
        return length, 0
    last = said[count - 1]
    for place in range(count - 2, 0, -1):
        if said[place] == last:
            alike = 1
            while alike < LONGEST and alike <= place and said[place - alike] == said[count - 1 - alike]:
                alike += 1
            if alike > length:
                length, after = alike, place + 1
                if length == LONGEST:
                    break
    if length < KEY:
        return length, 0
    if trust[length] < LEAST:
        trust[length] += RETRIED
        return length, 0
    guessed = min(most, MANY if length >= LONG else FEW)
    for i in range(guessed):
        # A match that reaches the end goes on in the proposal itself: repetition repeats.
        said[count + i] = said[after + i]
    return length, guessed


@inner
def judged(trust: Any, length: int, guessed: int, right: int) -> None:
    """Update the acceptance of matches of `length` tokens after a proposal of which `right` tokens were accepted."""
    if guessed:
        trust[length] = KEPT * trust[length] + (1.0 - KEPT) * (right > 0)
