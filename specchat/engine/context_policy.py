"""Which messages of a chat that outgrew the context are still sent."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.engine.options import Limits, Message

RESERVE = 4
"""A reply gets at most one in so many tokens of the context kept free for it."""


@dataclass(frozen=True)
class Kept:
    """The messages to send, in order, after `dropped` of the chat's were left out."""

    messages: tuple[Message, ...]
    dropped: int


def fit(messages: Sequence[Message], limits: Limits, context: int, count: Callable[[Sequence[Message]], int]) -> Kept:
    """As many whole turns of a chat as fit `context` tokens with room for the reply, as `limits.context` says.

    Where not even the last turn leaves that room, the least there is; it may be longer than the context.

    Args:
        count: tokens of messages as a prompt. It is asked about few more messages than are kept, a logarithmic number
            of times, and taken to grow with them.
    """
    chat = tuple(messages)
    begins = [i for i, m in enumerate(chat) if m.role == "user"]
    # What stands before the first user's message belongs to the first turn.
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
    return Kept(kept, len(chat) - len(kept))


def reserve(limits: Limits, context: int) -> int:
    """Tokens of the context that are kept free for a reply; at least one."""
    share = context // RESERVE
    return max(1, share if limits.max_tokens is None else min(limits.max_tokens, share))


def _fewest(most: int, fits: Callable[[int], bool]) -> int:
    """The fewest turns, at most `most`, that must go; `most` too when none of it fits.

    Tried from the least that can be kept in doubling steps, so that a long chat is never counted as a whole.
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
