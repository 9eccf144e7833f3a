"""Tokens that a drafting model goes over at once, because they followed the same words before.

A pass of a small model over four tokens takes little longer than over one. So the model reads, beside the last token,
those that a lookup would draft (Saxena 2023), and as long as it would have drafted them itself, a pass each is saved:
speculation within the draft (Spector and Re 2023, "Staged speculative decoding"). What it drafts stays the same.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.simd import inner

KEY, LONGEST = 2, 8
"""Tokens that must have occurred before, and that are compared."""
FEW, MANY = 3, 7
"""Tokens that are guessed after a short match and after one of LONG tokens."""
LONG = 4
KEPT = 0.9
"""Weight of what is known after one more guess."""
LEAST = 0.25
"""Share of guesses whose first token was right below which nothing is guessed after so long a match."""
RETRIED = 0.01
"""What that share rises by each time that nothing is guessed."""


def unknown() -> NDArray[np.float64]:
    """What `guess` goes by at first: float64 [LONGEST + 1], by the length of a match how often it was right."""
    return np.full(LONGEST + 1, 0.5)


@inner
def guess(said: Any, count: int, most: int, trust: Any) -> tuple[int, int]:
    """Put up to `most` tokens that followed the last ones of said[:count] before after these.

    Returns:
        how many tokens were alike, and how many were put there.
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
        # A match that reaches the end goes on in the guess itself: repetition repeats.
        said[count + i] = said[after + i]
    return length, guessed


@inner
def judged(trust: Any, length: int, guessed: int, right: int) -> None:
    """A guess after `length` tokens that were alike had so many tokens `right`."""
    if guessed:
        trust[length] = KEPT * trust[length] + (1.0 - KEPT) * (right > 0)
