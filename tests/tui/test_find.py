"""Finding words, letters for what is in view, tokens under the cursor: without a screen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_chat_rows import a_chat, add, opened
from test_text import a_reply, answered, step
from textual.style import Style

from specchat.chat.tree import Conversation
from specchat.tui.finder import Finder
from specchat.tui.screens.messages import best
from specchat.tui.text.chat_rows import Said
from specchat.tui.text.find import find_all, found_in, pattern_of
from specchat.tui.text.inspect import cells_of, inspected, token_at
from specchat.tui.text.labels import labels, overlaid, targets
from specchat.tui.text.lines import hang, styled
from specchat.tui.text.tokens import TokenSection
from specchat.tui.text.turn import TurnView


def count(query: str, text: str) -> int:
    pattern = pattern_of(query)
    return len(pattern.findall(text)) if pattern else 0


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("fox", "Fox FOX fox", 3),
        ("Fox", "Fox FOX fox", 1),
        ("small fox", "a **small** fox, a small\n> fox, _small fox_", 3),
        ("a.b", "a.b axb", 1),
        ("  ", "anything", 0),
        ("(", "f(x", 1),
    ],
)
def test_what_a_query_finds(query: str, text: str, expected: int) -> None:
    assert count(query, text) == expected


def test_matches_that_were_wrapped_are_marked_in_every_row() -> None:
    lines = hang(styled("one two three four five"), 9)
    pattern = pattern_of("two three")
    assert pattern is not None
    ((first, second),) = found_in(lines, pattern)
    assert [lines[row].content.plain[start:end] for row, start, end in (first, second)] == ["two", "three"]


@settings(max_examples=100)
@given(st.text("ab *\n", max_size=60), st.text("ab ", min_size=1, max_size=4), st.integers(8, 20))
def test_marked_rows_hold_what_was_looked_for(text: str, query: str, width: int) -> None:
    pattern = pattern_of(query)
    if pattern is None:
        return
    lines = hang(styled(text), width)
    for spans in found_in(lines, pattern):
        marked = " ".join(lines[row].content.plain[start:end] for row, start, end in spans)
        assert "".join(marked.split()).replace("*", "").casefold() == "".join(query.split()).casefold()


def test_going_through_matches_wraps_round_and_sees_new_ones() -> None:
    chat = a_chat(5)
    finder = Finder()
    finder.look_for("answer")
    found = finder.nearest(chat, Said(chat.turns[3], "you"), 0)
    assert found is not None
    assert (found.number, finder.words(chat)) == (3, "4 of 5")
    for direction, number in ((1, 4), (1, 0), (-1, 4), (-1, 3)):
        found = finder.step(chat, direction)
        assert found is not None
        assert found.number == number
    add(chat, "more?", "the answer")
    assert finder.words(chat) == "4 of 6"
    finder.step(chat, 1)
    finder.step(chat, 1)
    assert finder.words(chat) == "6 of 6"
    finder.look_for("nowhere")
    assert finder.nearest(chat, None, 0) is None
    assert finder.words(chat) == "no match"
    assert finder.step(chat, 1) is None
    add(chat, "where?", "nowhere")
    assert finder.words(chat) == "1 match"


def test_above_the_end_the_last_match_is_nearest() -> None:
    chat = a_chat(5)
    finder = Finder()
    finder.look_for("question 2.")
    found = finder.nearest(chat, Said(chat.turns[4], "model"), 10)
    assert found is not None
    assert found.number == 2


def test_matches_are_in_the_order_of_the_chat() -> None:
    chat = a_chat(30)
    pattern = pattern_of("n")
    assert pattern is not None
    matches = find_all(chat.turns, pattern)
    assert matches == sorted(matches, key=lambda match: match.order)


# Letters


def test_letters_are_told_apart() -> None:
    for many in (0, 5, 26, 27, 300):
        given_out = labels(many)
        assert len(given_out) == len(set(given_out)) == many
        assert not any(a != b and b.startswith(a) for a in given_out for b in given_out)


def test_messages_code_and_links_get_letters() -> None:
    chat = Conversation()
    add(chat, "hi", "See [this](https://x.y/z) and ftp://no.\n\n```py\nx = 1\n```\n\n```\ny\n```")
    rows = opened(chat)
    found = targets(rows, 0, len(rows.rows))
    assert [(target.kind, target.text) for target in found] == [
        ("message", ""), ("message", ""), ("link", "https://x.y/z"), ("code", "x = 1"), ("code", "y"),
    ]  # fmt: skip
    assert [rows.rows[target.row][0].content.plain for target in found[:2]] == [
        "▌ hi",
        "See this (https://x.y/z) and ftp://no.",
    ]


@given(st.text("ab漢😀 ", max_size=20), st.integers(0, 20))
def test_a_letter_moves_nothing_beside_it(text: str, column: int) -> None:
    content = styled(text)
    column = min(column, len(content))
    drawn = overlaid(content, column, "a", Style())
    assert drawn.cell_length == max(content.cell_length, content[:column].cell_length + 2)
    assert drawn.plain.startswith(text[:column] + "a ")


# Tokens


def a_token_section(width: int) -> tuple[TokenSection, list[str]]:
    pieces = [("Once", "draft"), (" upon", "draft"), (" a", "target"), ("\ttime", "bonus"), (" 漢字", "plain")]
    reply = a_reply(*[step(piece, rejected=" the" if piece[1] == "target" else "") for piece in pieces])
    view = TurnView(answered("p", reply), first=True, token_view=True)
    section = view.sections()[-1]
    assert isinstance(section, TokenSection)
    section.lines(width)
    return section, [piece for piece, _ in pieces]


@pytest.mark.parametrize("width", [8, 11, 60])
def test_every_token_is_found_in_its_rows(width: int) -> None:
    section, pieces = a_token_section(width)
    lines = section.lines(width)
    for token, piece in zip(section.tokens, pieces, strict=True):
        shown = "".join(lines[row].content.plain[start:end] for row, start, end in cells_of(section, token, lines))
        assert "".join(shown.split()) == "".join(piece.replace("\t", "⇥").split())
        row, start, _ = cells_of(section, token, lines)[0]
        assert token_at(section, row, lines, start) == token


def test_what_is_known_of_a_token() -> None:
    made = step(("Once", "draft"), (" a", "target"), rejected=" the", accepted=1)
    reply = a_reply(made)
    view = TurnView(answered("p", reply), first=True, token_view=True)
    section = view.sections()[-1]
    assert isinstance(section, TokenSection)
    words = inspected(reply, section.tokens[1], 80, 3).plain
    assert words == (
        "“ a” correction · step 1 of 1 · drafted here: “Once” 90 % ▸“ the” 10 % rejected"
        " · 5 drafted, 2 tested, 1 accepted · draft 1.0, verify 8.0, other 1.0 ms"
    )


def test_a_plain_token_has_no_draft() -> None:
    reply = a_reply(step(("x", "plain"), drafted=0))
    section = TurnView(answered("p", reply), first=True, token_view=True).sections()[-1]
    assert isinstance(section, TokenSection)
    assert "nothing was drafted" in inspected(reply, section.tokens[0], 80, 3).plain


# The list of messages


def test_messages_are_filtered() -> None:
    chat = a_chat(400)
    entries = [(Said(turn, "you"), turn.prompt) for turn in chat.turns]
    assert best("", entries) == entries[-200:]
    assert best("question 123.", entries)[0][1] == "question 123."
    assert "question 77." in [line for _, line in best("q77", entries)]
    assert best("xyz", entries) == []
