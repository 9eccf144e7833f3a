"""A step's text, token by token."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.engine.events import Drafted, Piece, Step
from specchat.engine.trace import read
from specchat.tui.text.parts import TokenPart, parts_of

ROOT = Path(__file__).parents[2]


def step(pieces: list[tuple[str, str]], drafts: list[str], accepted: int) -> Step:
    made = tuple(Piece(text, source) for text, source in pieces)
    return Step(1, made, len(drafts), len(drafts), accepted, accepted + 1, 1, 1, 1, 9, "draft",
                tuple(Drafted(text, 0.5) for text in drafts))  # fmt: skip


@pytest.mark.parametrize("drafts", [[" there", " lived", " a", " red"], ["there", "lived", "a", "red"]])
def test_a_run_is_taken_apart(drafts: list[str]) -> None:
    made = step([(" there lived a", "draft"), (" fox", "target")], drafts, 3)
    assert parts_of(made) == [
        TokenPart(" there", "draft", 0), TokenPart(" lived", "draft", 1),
        TokenPart(" a", "draft", 2), TokenPart(" fox", "target", 3)
    ]  # fmt: skip


def test_each_position_has_its_token_when_all_are_kept() -> None:
    made = step([("ab", "lookup"), ("c", "bonus")], ["a", "b"], 2)
    assert parts_of(made) == [TokenPart("a", "lookup", 0), TokenPart("b", "lookup", 1), TokenPart("c", "bonus", 2)]


def test_a_token_without_a_draft_is_the_first() -> None:
    assert parts_of(step([("a", "plain")], [], 0)) == [TokenPart("a", "plain", 0)]


@pytest.mark.parametrize(
    ("run", "drafts"),
    [("é is", ["\ufffd", "\ufffd", " is"]), ("x there", [" there"]), ("there", ["the"]), ("a", ["", "a"])],
    ids=["a character in two tokens", "held back before", "the rest is held back", "a token without text"],
)
def test_a_run_that_is_not_its_drafts_stays_whole(run: str, drafts: list[str]) -> None:
    assert parts_of(step([(run, "draft"), ("!", "target")], drafts, len(drafts)))[0] == TokenPart(run, "draft", None)


@given(st.data())
def test_no_text_is_lost(data: st.DataObject) -> None:
    text = st.text("ab é", max_size=4)
    pieces = data.draw(st.lists(st.tuples(text, st.sampled_from(["draft", "target", "bonus"])), max_size=4))
    drafts = data.draw(st.lists(text, max_size=6))
    made = step(pieces, drafts, data.draw(st.integers(0, len(drafts))))
    parts = parts_of(made)
    assert "".join(part.text for part in parts) == "".join(text for text, _ in pieces)
    known = [part.position for part in parts if part.position is not None]
    assert known == sorted(set(known))


def test_every_token_of_the_recorded_replies_is_known() -> None:
    steps = [event for event in read(ROOT / "screenshots" / "trace.jsonl") if isinstance(event, Step)]
    parts = [part for each in steps for part in parts_of(each)]
    assert len(parts) > 100
    assert [part for part in parts if part.position is None] == []
