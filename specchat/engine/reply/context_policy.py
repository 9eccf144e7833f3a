"""Selects the messages of a chat that fit the context."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.engine.protocol.options import Limits, Message

RESERVE_DIVISOR = 4
"""A reply reserves at most this fraction of the context, 1 / 4."""


@dataclass(frozen=True)
class KeptMessages:
    """The messages to send, in order, and the number `dropped`."""

    messages: tuple[Message, ...]
    dropped: int


def fit(
    messages: Sequence[Message], limits: Limits, context: int, count: Callable[[Sequence[Message]], int]
) -> KeptMessages:
    """Keep as many whole turns as fit `context` tokens beside the reply, by the policy `limits.context`.

    If not even the last turn leaves that room, the fewest messages remain; they may exceed the context.

    Args:
        count: tokens of messages as a prompt, assumed to grow with them. It is called a logarithmic number of times,
            with few more messages than are kept.
    """
    chat = tuple(messages)
    begins = [i for i, m in enumerate(chat) if m.role == "user"]
    # Messages before the first user's belong to the first turn.
    begins[:1] = [0]
    first = 1 if limits.context == "keep-ends" else 0
    most = 0 if limits.context == "refuse" else max(0, len(begins) - 1 - first)
    room = context - reserve(limits, context)

    def without(turns: int) -> tuple[Message, ...]:
        if turns == 0:
            return chat
        start, end = begins[first], begins[first + turns]
        return (*chat[:start], *(m for m in chat[start:end] if m.role == "system"), *chat[end:])

    def fits(turns: int) -> bool:
        return count(without(turns)) <= room

    kept = without(_fewest(most, fits))
    return KeptMessages(kept, len(chat) - len(kept))


def reserve(limits: Limits, context: int) -> int:
    """Tokens of the context reserved for a reply; at least one."""
    share = context // RESERVE_DIVISOR
    return max(1, share if limits.max_tokens is None else min(limits.max_tokens, share))


def _fewest(most: int, fits: Callable[[int], bool]) -> int:
    """The fewest turns, at most `most`, to drop; `most` also if nothing fits.

    The search doubles from the fewest kept turns, so that a long chat is never counted as a whole.
    """
    if most == 0 or not fits(most):
        return most
    enough, step = most, 1
    while enough > 0:
        fewer = max(0, enough - step)
        if not fits(fewer):
            return bisect_left(range(enough), True, lo=fewer + 1, key=fits)
        enough, step = fewer, 2 * step
    return 0
