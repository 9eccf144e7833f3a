"""Reasoning folded, formulas kept."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_text import a_reply, answered, shown

from specchat.chat.reasoning import Reasoning, thoughts_in
from specchat.chat.turn import Reply
from specchat.engine.protocol.events import Finished, Piece, Step
from specchat.engine.protocol.options import Sampling, Span, Speculation, Written
from specchat.engine.protocol.stats import Stats
from specchat.engine.text.marks import MARKS, Marks
from specchat.tui.text.turn import TurnView

RUNS = ["\n", "\n\n", "a word ", "x", "</think>", "```\n", " ", "- a\n", "[THINK]"]


def saying(*spans: Span) -> Step:
    """A verify step with these pieces."""
    pieces = tuple(Piece(text, "draft", reasoning) for text, reasoning in spans)
    return Step(1, pieces, 5, 1, 0, len(pieces), 1, 8, 1, 10, "draft")


def finish(reply: Reply, *, thinking: bool = False) -> None:
    written = reply.written
    reply.finished(Finished(1, "stop", written.text, (), Stats(), written.reasoning, thinking))


def saved(text: str) -> Reply:
    """A reply from a chat that knows of no reasoning."""
    reply = Reply(1, "demo", Sampling(), Speculation(), "finished")
    reply.restore(Written(text), known=False)
    return reply


def found(text: str) -> tuple[list[str], str | None, str]:
    """Thoughts, the one that is open, and the answer, in a text with marks."""
    thoughts, thinking = thoughts_in(text)
    return (
        [text[thought.inner_start : thought.inner_end] for thought in thoughts],
        None if thinking is None else text[thinking.inner_start : thinking.inner_end],
        "" if thinking else text[thoughts[-1].end :] if thoughts else text,
    )


@pytest.mark.parametrize("marks", MARKS)
def test_every_pair_of_marks_in_a_text(marks: Marks) -> None:
    whole = f"\n{marks.opening}let me see{marks.closing}\n\nYes."
    assert found(whole) == (["let me see"], None, "\n\nYes.")
    assert found(f"let me see\n{marks.closing}\n\nYes.") == (["let me see\n"], None, "\n\nYes.")
    assert found(f"I should answer.{marks.closing}Yes.") == (["I should answer."], None, "Yes.")
    assert Reasoning(saved(whole)).answer == "Yes."


@pytest.mark.parametrize(
    "text",
    [
        "No marks at all.",
        "The mark <think>is explained</think> here.",
        "```\n</think>\n```\nis how it ends",
        "one </think> in a line",
        "<thin ice",
        "",
    ],
)
def test_talk_about_marks_is_an_answer(text: str) -> None:
    assert found(text) == ([], None, text)
    assert Reasoning(saved(text)).answer == text


def test_a_text_with_several_thoughts_or_an_open_one() -> None:
    assert found("<think>a</think>\n<think>b</think>c") == (["a", "b"], None, "c")
    assert found("<think>one two") == ([], "one two", "")
    assert Reasoning(saved("<think>one two")).answer == ""


def test_marks_in_a_reply_of_the_engine_are_text() -> None:
    """The engine tells reasoning from answer; what it takes for text is that."""
    reply = a_reply(saying(("<think>a</think>b", False)))
    assert not Reasoning(reply).any
    assert Reasoning(reply).answer == "<think>a</think>b"


def test_reasoning_between_parts_of_an_answer() -> None:
    reply = a_reply(saying(("So ", False), ("hm", True), ("yes", False)))
    finish(reply)
    assert Reasoning(reply).answer == "So yes"
    rows = shown(TurnView(answered("p", reply), first=True, token_view=False))
    assert [row for row in rows if row in ("So ", "So", "yes") or "thought" in row] == [
        "So",
        "▸ thought for 1 word · enter/click unfolds",
        "yes",
    ]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(RUNS), st.booleans()), max_size=14), st.booleans(), st.integers(0, 3), st.data()
)
def test_a_streamed_reply_looks_like_the_finished_one(
    runs: list[Span], unfolded: bool, every: int, data: st.DataObject
) -> None:
    thinking = bool(runs) and runs[-1][1] and data.draw(st.booleans())
    live, once = a_reply(), a_reply(saying(*runs))
    folds = {live.key, once.key} if unfolded else set()
    view = TurnView(answered("p", live), first=True, token_view=False, unfolded=folds)
    for text, reasoning in runs:
        cut = min(every, len(text))
        for part in (text[:cut], text[cut:]):
            live.step(saying((part, reasoning)))
            view.sections()
    for reply in (live, once):
        finish(reply, thinking=thinking)
    fresh = TurnView(answered("p", once), first=True, token_view=False, unfolded=folds)
    assert shown(view) == shown(fresh)


def test_reasoning_is_one_line_until_unfolded() -> None:
    reply = a_reply(saying(("\nlet me see\n\nwell", True)))
    folds: set[str] = set()
    view = TurnView(answered("p", reply), first=True, token_view=False, unfolded=folds)
    assert shown(view)[-1] == "▸ thinking… 4 words · enter/click unfolds"
    reply.step(saying(("\n", True), ("\n\nYes.", False)))
    finish(reply)
    assert shown(view)[2:5] == ["▸ thought for 4 words · enter/click unfolds", "", "Yes."]
    folds.add(reply.key)
    assert shown(view)[2:7] == [
        "▾ thought for 4 words · enter/click folds",
        "▎ let me see",
        "▎ ",
        "▎ well",
        "",
    ]
    assert "Yes." in shown(view)


def test_an_answer_that_turned_out_to_be_reasoning_is_folded() -> None:
    reply = a_reply(saying(("First this.\n\nThen that.\n", False)))
    view = TurnView(answered("p", reply), first=True, token_view=False)
    assert "First this." in shown(view)
    reply.step(replace(saying(("\nYes", False)), turned=True))
    assert shown(view)[-3:] == ["▸ thought for 4 words · enter/click unfolds", "", "Yes"]
    assert reply.written.answer == "Yes"


def test_reasoning_that_was_cut_off_is_no_answer() -> None:
    reply = a_reply(saying(("let me see", True)))
    finish(reply, thinking=True)
    rows = shown(TurnView(answered("p", reply), first=True, token_view=False))
    assert "▸ thinking was cut off after 3 words · enter/click unfolds" in rows
    assert Reasoning(reply).answer == ""
