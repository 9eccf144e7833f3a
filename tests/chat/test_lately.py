"""What replies say of their speed together, where one is too short to tell it."""

from dataclasses import replace

from specchat.chat.lately import speedup_lately
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.engine.protocol.events import Started
from specchat.engine.protocol.options import Sampling, Speculation
from tests.fake_steps import compared, steps

SPECULATION = Speculation.of("draft")
SHORT = "One two three four five six seven eight nine ten eleven twelve. " * 2
"""Some ten steps."""


def answered(
    chat: Conversation,
    speculation: Speculation = SPECULATION,
    name: str = "demo",
    text: str = SHORT,
    plain_error: float = 0.0,
) -> Reply:
    reply = Reply(1, name, Sampling(), speculation)
    chat.answer(chat.ask("hi"), reply)
    reply.started(Started(1, 3, 0, 0, speculation))
    for step in compared(steps(text), 100.0):
        reply.step(replace(step, id=1, plain_error=plain_error))
    return reply


def test_short_replies_tell_a_speed_together() -> None:
    chat = Conversation()
    first = answered(chat)
    assert first.speedup is speedup_lately(first) is None
    second = answered(chat)
    third = answered(chat)
    found = speedup_lately(third)
    assert second.speedup is None
    assert found is not None
    one = first.tally.compared
    assert abs(found.times - one.plain_ms / one.own_ms) < 1e-9


def test_a_reply_that_tells_nothing_leaves_what_the_one_before_told() -> None:
    chat = Conversation()
    long = answered(chat, text=SHORT * 3)
    known = long.speedup
    short = answered(chat, plain_error=0.9)
    assert known is not None
    assert short.speedup is None
    assert speedup_lately(short) == known


def test_a_long_reply_is_not_told_by_the_one_before() -> None:
    """What it tells may be otherwise, while load hides by how much."""
    chat = Conversation()
    assert answered(chat, text=SHORT * 3).speedup is not None
    long = answered(chat, text=SHORT * 3, plain_error=0.9)
    assert long.speedup is None
    assert speedup_lately(long) is None


def test_replies_of_other_pairs_and_strategies_do_not_count() -> None:
    chat = Conversation()
    answered(chat, Speculation.of("lookup"))
    answered(chat, Speculation.of("lookup"))
    assert speedup_lately(answered(chat)) is None
    answered(chat, name="other")
    assert speedup_lately(answered(chat)) is None
