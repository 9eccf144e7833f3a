"""Nested speculation: a prompt lookup proposes tokens that the draft model verifies in its next pass.

A pass of a small model over four tokens takes little longer than over one. So the pass over the last token also
covers tokens that followed the same tokens before (Saxena 2023). Each one that the model would draft saves a pass
(Spector and Re 2023, "Staged speculative decoding"). The draft does not change.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.primitives.simd import inner

MIN_MATCH_TOKENS, MAX_MATCH_TOKENS = 2, 8
"""Fewest tokens of a match that is used, and most that are compared."""
SHORT_PROPOSAL, LONG_PROPOSAL = 3, 7
"""Tokens proposed after a short match and after one of LONG_MATCH_TOKENS."""
LONG_MATCH_TOKENS = 4
DECAY = 0.9
"""Weight of the former estimate after one more proposal."""
MIN_ACCEPTANCE = 0.25
"""Acceptance of proposals' first tokens below which matches of that length propose nothing."""
RECOVERY = 0.01
"""Rise of that acceptance each time that nothing is proposed."""


def initial_acceptance() -> NDArray[np.float64]:
    """Acceptance to begin with, by the length of a match: float64 [MAX_MATCH_TOKENS + 1]."""
    return np.full(MAX_MATCH_TOKENS + 1, 0.5)


@inner
def propose(token_ids: Any, count: int, most: int, acceptance: Any) -> tuple[int, int]:
    """Append up to `most` proposed tokens to token_ids[:count]: the ones that followed its longest earlier match.

    Returns:
        length of the match, and number of proposed tokens.
    """
    length, source = 0, 0
    if most <= 0:
        return length, 0
    last = token_ids[count - 1]
    for position in range(count - 2, 0, -1):
        if token_ids[position] == last:
            matched = 1
            while (
                matched < MAX_MATCH_TOKENS
                and matched <= position
                and token_ids[position - matched] == token_ids[count - 1 - matched]
            ):
                matched += 1
            if matched > length:
                length, source = matched, position + 1
                if length == MAX_MATCH_TOKENS:
                    break
    if length < MIN_MATCH_TOKENS:
        return length, 0
    if acceptance[length] < MIN_ACCEPTANCE:
        acceptance[length] += RECOVERY
        return length, 0
    proposed = min(most, LONG_PROPOSAL if length >= LONG_MATCH_TOKENS else SHORT_PROPOSAL)
    for i in range(proposed):
        # A match that reaches the end goes on in the proposal itself: repetition repeats.
        token_ids[count + i] = token_ids[source + i]
    return length, proposed


@inner
def update_acceptance(acceptance: Any, length: int, proposed: int, accepted: int) -> None:
    """Update the acceptance of matches of `length` tokens after a proposal of which `accepted` tokens were accepted."""
    if proposed:
        acceptance[length] = DECAY * acceptance[length] + (1.0 - DECAY) * (accepted > 0)
