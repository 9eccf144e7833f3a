"""Chats that outgrow the context: what is left out, and that nothing more is."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.config.paths import demo_model
from specchat.engine.errors import ContextError
from specchat.engine.protocol.events import Event, Finished, Started
from specchat.engine.protocol.options import CONTEXT_POLICIES, ContextPolicy, Limits, Message, Role
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.reply.context_policy import RESERVE_DIVISOR, KeptMessages, fit, reserve
from specchat.engine.session import Session
from specchat.engine.text.tokenizer import Tokenizer

ROLES: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant"}


def chat(turns: str) -> list[Message]:
    """`"su1a1u2"`: roles, each with a number to know it by."""
    return [Message(ROLES[part[0]], part[1:]) for part in turns.split()]


def said(kept: KeptMessages) -> str:
    return " ".join(message.role[0] + message.content for message in kept.messages)


def one_each(messages: Sequence[Message]) -> int:
    return len(messages)


CHAT = chat("s u1 a1 u2 a2 u3 a3 u4")


@pytest.mark.parametrize(
    ("policy", "room", "kept"),
    [
        ("refuse", 1, "s u1 a1 u2 a2 u3 a3 u4"),
        ("drop-oldest", 8, "s u1 a1 u2 a2 u3 a3 u4"),
        ("drop-oldest", 7, "s u2 a2 u3 a3 u4"),
        ("drop-oldest", 6, "s u2 a2 u3 a3 u4"),
        ("drop-oldest", 5, "s u3 a3 u4"),
        ("drop-oldest", 3, "s u4"),
        ("drop-oldest", 1, "s u4"),
        ("keep-ends", 7, "s u1 a1 u3 a3 u4"),
        ("keep-ends", 5, "s u1 a1 u4"),
        ("keep-ends", 1, "s u1 a1 u4"),
    ],
)
def test_the_policy_says_what_goes(policy: ContextPolicy, room: int, kept: str) -> None:
    found = fit(CHAT, Limits(1, context=policy), room + 1, one_each)
    assert said(found) == kept
    assert found.dropped == len(CHAT) - len(found.messages)


@pytest.mark.parametrize(
    ("turns", "policy", "kept"),
    [
        ("a0 u1 a1 u2", "drop-oldest", "u2"),
        ("a0 u1 a1 u2 a2 u3", "keep-ends", "a0 u1 a1 u3"),
        ("u1 u2 u3", "drop-oldest", "u3"),
        ("s1 u1 a1 s2 u2 a2", "drop-oldest", "s1 s2 u2 a2"),
        ("s a1 a2", "drop-oldest", "s a1 a2"),
        ("", "drop-oldest", ""),
        ("u1", "keep-ends", "u1"),
        ("u1 u2", "keep-ends", "u1 u2"),
    ],
)
def test_odd_chats_are_cut_between_turns(turns: str, policy: ContextPolicy, kept: str) -> None:
    assert said(fit(chat(turns), Limits(1, context=policy), 2, one_each)) == kept


def test_room_for_the_reply_is_what_it_may_take_but_not_all() -> None:
    assert [reserve(Limits(n), 400) for n in (None, 0, 7, 100, 5000)] == [100, 1, 7, 100, 100]
    assert reserve(Limits(), 2) == 1


@given(
    roles=st.lists(st.sampled_from("sua"), max_size=24),
    sizes=st.lists(st.integers(0, 9), min_size=24, max_size=24),
    policy=st.sampled_from(CONTEXT_POLICIES),
    context=st.integers(2, 120),
    most=st.one_of(st.none(), st.integers(0, 40)),
)
def test_no_fewer_and_no_more_than_must_go(
    roles: list[str], sizes: list[int], policy: ContextPolicy, context: int, most: int | None
) -> None:
    messages = [Message(ROLES[role], f"{i} " + "x" * sizes[i]) for i, role in enumerate(roles)]

    def count(some: Sequence[Message]) -> int:
        return 1 + sum(1 + m.content.count("x") for m in some)

    limits = Limits(most, context=policy)
    found = fit(messages, limits, context, count)
    kept = list(found.messages)
    assert kept == [m for m in messages if m in kept]  # in order, none twice
    assert found.dropped == len(messages) - len(kept)
    assert [m for m in messages if m.role == "system"] == [m for m in kept if m.role == "system"]
    assert [m for m in messages if m.role == "user"][-1:] == [m for m in kept if m.role == "user"][-1:]
    room = context - max(1, min(context // RESERVE_DIVISOR, context if most is None else most))
    # Every number of turns that may go, tried one after the other.
    first = 1 if policy == "keep-ends" else 0
    turns: list[list[Message]] = [[]]
    for message in messages:
        if message.role == "user" and any(m.role == "user" for m in turns[-1]):
            turns.append([])
        turns[-1].append(message)
    droppable = 0 if policy == "refuse" else max(0, len(turns) - 1 - first)
    for gone in range(droppable + 1):
        left = [m for i, turn in enumerate(turns) for m in turn if not first <= i < first + gone or m.role == "system"]
        if count(left) <= room:
            break
    assert kept == left


def story(turns: int) -> tuple[Message, ...]:
    """A chat of `turns` questions, all but the last answered."""
    asked = [Message("user", f"Question {i}: what does the fox do with lamp {i}?") for i in range(turns)]
    answers = [
        Message("assistant", f"In story {i} the fox lights the lamp and reads until morning.") for i in range(turns)
    ]
    return (Message("system", "Be brief."), *(m for pair in zip(asked, answers, strict=True) for m in pair))[:-1]


@pytest.mark.parametrize("policy", ["drop-oldest", "keep-ends"])
def test_ten_thousand_messages_are_cut_by_looking_at_few(policy: ContextPolicy) -> None:
    tokenizer = Tokenizer.read(demo_model("target"))
    messages = story(5000)
    assert len(messages) == 10_000
    asked: list[int] = []

    def count(some: Sequence[Message]) -> int:
        asked.append(len(some))
        return len(tokenizer.prompt(some))

    found = fit(messages, Limits(context=policy), 1024, count)
    assert len(found.messages) > 10
    assert sum(asked) < 20 * len(found.messages)


def run(demo: Session, limits: Limits, messages: tuple[Message, ...]) -> tuple[Started, Finished]:
    events = list[Event](demo.generate(Generate(1, messages, limits=limits)))
    assert isinstance(events[-1], Finished)
    return next(event for event in events if isinstance(event, Started)), events[-1]


def test_a_chat_that_outgrew_the_context_is_refused_or_answered_in_part(demo: Session) -> None:
    messages = story(60)
    with pytest.raises(ContextError, match=r"This chat takes \d,\d{3} tokens and Demo holds 1,024"):
        run(demo, Limits(8, context="refuse"), messages)
    whole = demo.count(Count(1, messages, Limits(context="refuse")))
    assert whole.tokens > whole.context
    assert whole.dropped == 0
    for policy in ("drop-oldest", "keep-ends"):
        limits = Limits(8, context=policy)
        started, finished = run(demo, limits, messages)
        counted = demo.count(Count(3, messages, limits))
        assert (counted.id, counted.tokens, counted.dropped) == (3, started.prompt_tokens, started.dropped)
        assert 950 < started.prompt_tokens <= 1024 - 8
        begin = 1 if policy == "drop-oldest" else 3
        kept = (*messages[:begin], *messages[begin + started.dropped :])
        alone, same = run(demo, Limits(8), kept)
        assert (alone.prompt_tokens, alone.dropped) == (started.prompt_tokens, 0)
        assert same.token_ids == finished.token_ids


def test_a_short_chat_is_sent_whole(demo: Session) -> None:
    started, _ = run(demo, Limits(4, context="drop-oldest"), story(3))
    assert started.dropped == 0
    assert started.prompt_tokens == demo.count(Count(1, story(3))).tokens


def test_one_message_too_long_is_refused_whatever_the_policy(demo: Session) -> None:
    messages = (*story(3), Message("assistant", "So."), Message("user", "word " * 1100))
    limits = Limits(4, context="drop-oldest")
    with pytest.raises(
        ContextError, match=r"Even without 6 of its messages this chat takes 1,\d{3} tokens.* Shorten the message"
    ):
        run(demo, limits, messages)
    counted = demo.count(Count(1, messages, limits))
    assert counted.tokens >= counted.context
    assert counted.dropped == 6


def test_a_system_prompt_too_long_is_named(demo: Session) -> None:
    messages = (Message("system", "word " * 1100), *story(3), Message("assistant", "So."), Message("user", "Go on."))
    with pytest.raises(ContextError, match=r"holds 1,024. Shorten the system prompt or start a new chat"):
        run(demo, Limits(4, context="drop-oldest"), messages)


def test_a_message_that_leaves_less_than_the_reserve_is_answered(demo: Session) -> None:
    messages = (*story(2), Message("assistant", "So."), Message("user", "word " * 900))
    started, finished = run(demo, Limits(300, context="drop-oldest"), messages)
    assert started.dropped == 4
    assert 900 < started.prompt_tokens < 1024
    assert finished.token_ids
