"""The speedup of the replies written last."""

from specchat.chat.turn import Reply
from specchat.engine.comparison import Comparison
from specchat.engine.stats import Speedup

LATELY = 4
"""Replies that are put together where one is too short to tell a speed."""


def speedup_lately(reply: Reply) -> Speedup | None:
    """Over plain decoding, of `reply` and, where that is too little, of those before it that drafted alike."""
    if (known := reply.speedup) is not None:
        return known
    joined, at = Comparison(), reply
    for _ in range(LATELY):
        joined.join(at.tally.compared)
        if (found := joined.speedup) is not None:
            return found
        before = at.turn.parent if at.turn is not None else None
        if before is None or (before.name, before.speculation) != (reply.name, reply.speculation):
            return None
        at = before
    return None
