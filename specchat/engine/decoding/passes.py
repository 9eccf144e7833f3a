"""What backends whose products are not ours have in common: how long passes are, and how their rows are compared."""

from specchat.engine.strategy import MAX_DRAFT_LENGTH

BLOCK = 512
"""Most tokens of one pass."""
MOST_ROWS = MAX_DRAFT_LENGTH + 1
"""Most rows whose logits are asked for at once: a pending token and the longest draft."""
BUDGET_S = 1.5
"""Seconds after which no other comparison is begun."""
SAFETY = 4.0
"""Times the largest difference that was seen: what counts as close."""

ALIKE = f"row-invariant: passes of 1 to {MOST_ROWS} rows compared bit for bit"

ONE_BY_ONE = "one token after the other: nothing is drafted"


def checked(error: float) -> str:
    """What is said of rows that differ by `error` in a logit at most."""
    return f"checked: choices closer than {error:.1g} in a logit are made again by one row alone"


def text(length: int, vocab: int) -> list[int]:
    """Tokens to compare passes over."""
    return [(7919 * (place + 1)) % vocab for place in range(length)]
