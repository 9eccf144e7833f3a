"""The speedup of the replies written last."""

from specchat.chat.turn import Reply
from specchat.engine.protocol.comparison import MIN_TOKENS, Comparison
from specchat.engine.protocol.stats import Speedup

LATELY = 4
"""Replies that are put together where one is too short to tell a speed."""


def speedup_lately(reply: Reply) -> Speedup | None:
    """Over plain decoding, of `reply` and, where that is too little, of those before it that drafted alike.

    Where `reply` has next to no tokens, of the one before that tells it alone. Of an ended reply it may be rough.
    """
    return _sure(reply) or (reply.tally.compared.rough if reply.ended else None)


def _sure(reply: Reply) -> Speedup | None:
    if (known := reply.speedup) is not None:
        return known
    joined, at, short = Comparison(), reply, reply.tally.compared.tokens < MIN_TOKENS
    for _ in range(LATELY):
        joined.join(at.tally.compared)
        if (found := joined.speedup or (at.speedup if short else None)) is not None:
            return found
        before = at.turn.parent if at.turn is not None else None
        if before is None or (before.name, before.speculation) != (reply.name, reply.speculation):
            return None
        at = before
    return None
