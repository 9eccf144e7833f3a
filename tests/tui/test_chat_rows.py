"""The rows of long chats: only what is near is laid out, and every message is found."""

from collections.abc import Callable
from functools import cache
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.options import Sampling, Speculation, Written
from specchat.tui.text.chat_rows import ChatRows, Said

WIDTH = 60
PART = "Once there was a **small fox** with a `lamp`.\n\n- one\n- two\n\n```python\nprint('lamp')\n```\n\n"


def add(chat: Conversation, prompt: str, text: str) -> Turn:
    turn = chat.ask(prompt)
    reply = Reply(len(chat.turns), "demo", Sampling(), Speculation.of("draft"), state="finished")
    reply.restore(Written(text))
    chat.answer(turn, reply)
    return turn


def a_chat(turns: int, text: str = PART, name: str = "answer") -> Conversation:
    """Turns that ask `question n.` and answer with `name` n and `text`; made in one go, as a path is walked anew."""
    chat = Conversation()
    parent: Reply | None = None
    for number in range(turns):
        turn = Turn(f"question {number}.", parent=parent)
        (parent.turns if parent is not None else chat.first).add(turn)
        parent = Reply(number, "demo", Sampling(), Speculation.of("draft"), state="finished")
        parent.restore(Written(f"{name} {number}.\n\n{text}"))
        parent.turn = turn
        turn.replies.add(parent)
    return chat


def opened(chat: Conversation) -> ChatRows:
    rows = ChatRows(chat)
    rows.open_end(WIDTH)
    return rows


def texts(rows: ChatRows) -> list[str]:
    return [line.content.plain for line, _ in rows.rows]


def whole(chat: Conversation) -> list[str]:
    rows = opened(chat)
    while rows.extend(WIDTH):
        pass
    assert rows.at_start
    assert rows.at_end
    return texts(rows)


def test_only_the_end_is_laid_out_at_first() -> None:
    rows = opened(a_chat(500))
    assert rows.at_end
    assert not rows.at_start
    assert 400 <= len(rows.rows) < 800
    assert "answer 499." in texts(rows)


@cache
def long_chat() -> tuple[Conversation, list[str]]:
    """A chat, and all of its rows."""
    chat = a_chat(300)
    return chat, whole(chat)


@settings(max_examples=8)
@given(st.integers(0, 299), st.sampled_from(["you", "model"]), st.lists(st.sampled_from([-1, 1]), max_size=6))
def test_any_message_is_reached_and_the_rows_around_it_are_right(number: int, by: str, then: list[int]) -> None:
    chat, every = long_chat()
    rows = opened(chat)
    row = rows.row_of(Said(chat.turns[number], "you" if by == "you" else "model"), WIDTH)
    assert row is not None
    below = texts(rows)[row : row + 4]
    assert f"▌ question {number}." in below if by == "you" else f"answer {number}." in below
    for direction in then:
        rows.extend(WIDTH) if direction < 0 else rows.extend_below(WIDTH)
    shown = texts(rows)
    start = next(i for i in range(len(every)) if every[i : i + len(shown)] == shown)
    assert (start == 0, start + len(shown) == len(every)) == (rows.at_start, rows.at_end)


def test_messages_follow_each_other_in_both_directions() -> None:
    chat = a_chat(100)
    rows = opened(chat)
    row: int | None = rows.row_of(Said(chat.turns[0], "you"), WIDTH)
    seen = []
    while row is not None:
        seen.append(rows.said_at(row))
        row = rows.next_message(row, 1, WIDTH)
    assert seen == [Said(turn, by) for turn in chat.turns for by in ("you", "model")]
    row = len(opened(chat).rows) - 1
    rows = opened(chat)
    back = []
    while (row := rows.next_message(row, -1, WIDTH)) is not None:
        back.append(rows.said_at(row))
    assert back == seen[::-1]


def test_a_place_is_found_at_another_width_and_in_the_token_view() -> None:
    chat = a_chat(200)
    rows = opened(chat)
    row = rows.row_of(Said(chat.turns[70], "model"), WIDTH)
    assert row is not None
    place = rows.place(row)
    assert place is not None
    for other in (rows, ChatRows(chat, token_view=True)):
        again = other.row_at(place, 30, anew=True)
        assert again is not None
        assert "answer 70." in " ".join(texts(other)[again : again + 4])


def test_growth_is_seen_at_the_end_and_ignored_elsewhere() -> None:
    chat = a_chat(200)
    rows = opened(chat)
    assert rows.sync(WIDTH) == (None, False)
    add(chat, "more?", "yes")
    changed, grown = rows.sync(WIDTH)
    assert grown
    assert changed is not None
    assert texts(rows)[changed:] == ["", "▌ more?", "", "yes", "", "demo"]
    rows.row_of(Said(chat.turns[0], "you"), WIDTH)
    assert not rows.at_end
    before = texts(rows)
    assert rows.sync(WIDTH) == (None, False)
    assert texts(rows) == before
    add(chat, "and more?", "no")
    assert rows.sync(WIDTH) == (None, True)
    rows.open_end(WIDTH)
    assert texts(rows)[-3:] == ["no", "", "demo"]


def test_another_branch_is_shown_from_its_end() -> None:
    chat = a_chat(50)
    rows = opened(chat)
    chat.edit(chat.turns[20], "something else")
    assert rows.stale
    rows.open_end(WIDTH)
    assert texts(rows)[-1] == "▌ something else"


def seconds(job: Callable[[], object]) -> float:
    """Of processor time, the least of three."""
    times = []
    for _ in range(3):
        start = process_time()
        job()
        times.append(process_time() - start)
    return min(times)


@pytest.mark.parametrize(
    ("few", "many", "most"),
    [((100, PART), (5000, PART), 12), ((1, PART * 400), (1, PART * 4000), 30)],
    ids=["fifty times the messages", "ten times the reply"],
)
def test_long_chats_open_quickly_anywhere(few: tuple[int, str], many: tuple[int, str], most: float) -> None:
    """Messages that are far cost nothing, a longer reply as much more as it is longer than another one."""
    short, long = a_chat(*few), a_chat(*many)
    allowed = most * seconds(lambda: opened(short))
    assert seconds(lambda: opened(long)) < allowed
    rows = opened(long)
    for number in (0, len(long.turns) // 2, len(long.turns) - 1):
        found = Said(long.turns[number], "model")
        assert rows.row_of(found, WIDTH) is not None
        assert seconds(lambda said=found: rows.row_of(said, WIDTH)) < allowed
    assert seconds(lambda: (rows.extend(WIDTH), rows.extend_below(WIDTH))) < allowed / 10
