"""Reasoning folded, formulas kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_text import a_reply, answered, shown, step, styles_at

from specchat.engine.api import Finished, Stats
from specchat.tui.text.blocks import Splitter, split
from specchat.tui.text.markdown import block_lines, parse
from specchat.tui.text.reasoning import TAGS, Reasoning, without_reasoning
from specchat.tui.text.turn import TurnView

PIECES = [
    "<think>",
    "</think>",
    "\n",
    "\n\n",
    "a word ",
    "x",
    "<thi",
    "</thi",
    "<",
    "```\n",
    " ",
    "[THINK]",
    "[/THINK]",
]


def found(text: str, *, ended: bool = True) -> tuple[list[str], str | None, str]:
    """Thoughts, the one that is open, and the answer."""
    reasoning = Reasoning()
    reasoning.feed(text, ended=ended)
    thinking = reasoning.thinking
    return (
        [text[thought.inner_start : thought.inner_end] for thought in reasoning.thoughts],
        None if thinking is None else text[thinking.inner_start : thinking.inner_end],
        "" if reasoning.held else text[reasoning.answer :],
    )


@pytest.mark.parametrize(("opening", "closing"), TAGS)
def test_every_pair_of_tags(opening: str, closing: str) -> None:
    assert found(f"\n{opening}let me see{closing}\n\nYes.") == (["let me see"], None, "\n\nYes.")
    assert found(f"let me see\n{closing}\n\nYes.") == (["let me see\n"], None, "\n\nYes.")
    assert without_reasoning(f"{opening}let me see{closing}\n\nYes.") == "Yes."


@pytest.mark.parametrize(
    "text",
    [
        "No tags at all.",
        "The tag <think>is explained</think> here.",
        "```\n</think>\n```\nis how it ends",
        "one </think> in a line",
        "<thin ice",
        "",
    ],
)
def test_talk_about_tags_is_an_answer(text: str) -> None:
    assert found(text) == ([], None, text)
    assert without_reasoning(text) == text


def test_while_it_is_written() -> None:
    assert found("<thi", ended=False) == ([], None, "")
    assert found("<think>one tw", ended=False) == ([], "one tw", "")
    assert found("<think>one two</th", ended=False) == ([], "one two", "")
    assert found("<think>one two</think>", ended=False) == (["one two"], None, "")
    assert found("one\n</think>", ended=False) == ([], None, "one\n</think>")
    assert found("<think>a</think>\n<think>b</think>c", ended=False) == (["a", "b"], None, "c")


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.data())
def test_any_split_of_the_stream_finds_the_same(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    reasoning = Reasoning()
    for cut in cuts:
        reasoning.feed(text[:cut])
    reasoning.feed(text, ended=True)
    once = Reasoning()
    once.feed(text, ended=True)
    assert (reasoning.thoughts, reasoning.thinking, reasoning.answer, reasoning.held) == (
        once.thoughts, once.thinking, once.answer, once.held,
    )  # fmt: skip
    covered = [0, *[at for thought in once.thoughts for at in (thought.start, thought.end)], once.answer]
    assert covered == sorted(covered)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.booleans(), st.data())
def test_a_streamed_reply_looks_like_the_finished_one(text: str, unfolded: bool, data: st.DataObject) -> None:
    live, once = a_reply(), a_reply(step((text, "draft")))
    folds = {live.key, once.key} if unfolded else set()
    view = TurnView(answered("p", live), first=True, token_view=False, unfolded=folds)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        live.step(step((text[start:end], "draft")))
        view.sections()
    for reply in (live, once):
        reply.finished(Finished(1, "stop", text, (), Stats()))
    fresh = TurnView(answered("p", once), first=True, token_view=False, unfolded=folds)
    assert shown(view) == shown(fresh)


def test_reasoning_is_one_line_until_unfolded() -> None:
    reply = a_reply(step(("<think>\nlet me see\n\nwell", "draft")))
    folds: set[str] = set()
    view = TurnView(answered("p", reply), first=True, token_view=False, unfolded=folds)
    assert shown(view)[-1] == "▸ thinking… 4 words · enter/click unfolds"
    reply.step(step(("\n</think>\n\nYes.", "draft")))
    reply.finished(Finished(1, "stop", reply.text, (), Stats()))
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


def test_a_lone_closing_tag_turns_what_was_shown_into_reasoning() -> None:
    reply = a_reply(step(("First this.\n\nThen that.\n", "draft")))
    view = TurnView(answered("p", reply), first=True, token_view=False)
    assert "First this." in shown(view)
    reply.step(step(("</think>\nYes", "draft")))
    assert shown(view)[-3:] == ["▸ thought for 4 words · enter/click unfolds", "", "Yes"]


# Formulas


def reply_rows(text: str) -> list[str]:
    """The rows of a reply, without the prompt, the names and what it cost."""
    reply = a_reply(step((text, "draft")))
    reply.finished(Finished(1, "stop", text, (), Stats()))
    return shown(TurnView(answered("p", reply), first=True, token_view=False), 200)[2:-2]


@pytest.mark.parametrize(
    "source",
    [
        "so $a_i * b_i * c$ holds",
        "so $$\\sum_{i} *x* _y_$$ holds",
        r"so \(a_1 + \alpha_2\) and \[x_1 \\ y_2\] hold",
        "$$\na_1\n+ b_2\n= c_3\n$$",
        "\\[\nx_1 * y\n- z * w\n\\]",
    ],
)
def test_formulas_are_kept_literally(source: str) -> None:
    assert reply_rows(source) == source.split("\n")


def test_formulas_have_a_style_of_their_own() -> None:
    (line,) = block_lines(parse("*so* $x_1$ ok"), 40)
    assert styles_at(line, "$x_1$") == {".md-math"}
    assert styles_at(line, "so") == {".md-em"}


@pytest.mark.parametrize(
    ("source", "shown_as"),
    [
        ("from $5 to $10 and *more*", "from $5 to $10 and more"),
        ("a $ b $ *c*", "a $ b $ c"),
        ("`$x` and $ *y*", "$x and $ y"),
        ("\\$5 *and* $6", "$5 and $6"),
        ("$$ *open*\n\nmore", "$$ open\n\nmore"),
        ("$$\n*open*\n\nmore", "$$\nopen\n\nmore"),
    ],
)
def test_dollars_are_not_always_formulas(source: str, shown_as: str) -> None:
    assert [row for row in reply_rows(source) if row] == [row for row in shown_as.split("\n") if row]


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["$$\n", "x_1\n", "\\[\n", "\\]\n", "\n", "- a\n", "```\n", "# h\n", "$$", "y "])),
    st.data(),
)
def test_any_split_of_formulas_gives_the_same_blocks(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    cut = data.draw(st.integers(0, len(text)))
    splitter = Splitter()
    blocks = splitter.feed(text[:cut]) + splitter.feed(text[cut:]) + splitter.close()
    assert blocks == split(text)
    assert "".join(block.source for block in blocks).split() == text.split()
