"""Common parts of backends with kernels of other projects: lengths of passes, and comparison of their logits."""

from specchat.engine.strategy import MAX_DRAFT_LENGTH

BLOCK = 512
"""Largest number of tokens in a pass."""
MOST_ROWS = MAX_DRAFT_LENGTH + 1
"""Largest number of logits rows in a pass: the pending token and the longest draft."""
BUDGET_S = 1.5
"""Seconds after which no further comparison begins."""
SAFETY = 4.0
"""Ratio of the margin of a close choice to the largest difference measured."""

ALIKE = f"row-invariant: passes of 1 to {MOST_ROWS} rows compared bit for bit"

ONE_BY_ONE = "one token after the other: nothing is drafted"


CHECKED = "checked"


def checked(error: float) -> str:
    """Describe rows whose logits differ by at most `error`."""
    return f"{CHECKED}: choices closer than {error:.1g} in a logit are made again by one row alone"


def short_context(model: str, context: int, longest: int | None, least: int) -> str:
    """Message that the test at load needs `least` tokens of context; `longest` is the limit that the files state."""
    if longest is not None and longest < least:
        return f"{model} states a context of {longest}, and a chat needs {least} tokens. Get the model from elsewhere."
    return f"{model}: context = {context} is too short. Set context = {least} or more for this pair in models.toml."


def pass_tokens(length: int, vocab: int) -> list[int]:
    """Return token ids to compare passes with."""
    return [(7919 * (place + 1)) % vocab for place in range(length)]
