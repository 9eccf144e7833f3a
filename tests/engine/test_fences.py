"""Fences are found whatever tokens they are made of."""

import pytest

from specchat.engine.drafters.parts import Fences, backquotes
from specchat.engine.session import Session

TOKENS = {"a": 0, "`": 1, "``": 2, "```": 3, "\n```": 4, "```py": 5, "`x`": 6}


@pytest.mark.parametrize("opening", [[3], [4], [5], [1, 1, 1], [2, 1], [1, 2], [0, 2, 1, 0]])
def test_a_fence_opens_and_closes_code(opening: list[int]) -> None:
    fences = Fences()
    fences.know(backquotes(TOKENS))
    for token in opening:
        fences.add([token])
    fences.add([0, 0])
    assert fences.code
    fences.add([3, 0])
    assert not fences.code


@pytest.mark.parametrize("inline", [[1, 0, 1], [2, 0, 1], [6, 6], [1, 0, 1, 0, 1], [0]])
def test_fewer_backquotes_in_a_row_are_no_fence(inline: list[int]) -> None:
    fences = Fences()
    fences.know(backquotes(TOKENS))
    fences.add(inline)
    assert not fences.code


def test_more_backquotes_in_a_row_are_one_fence() -> None:
    fences = Fences()
    fences.know(backquotes(TOKENS))
    fences.add([3, 3])
    assert fences.code


def test_the_next_reply_begins_with_prose() -> None:
    fences = Fences()
    fences.know(backquotes(TOKENS))
    fences.add([3, 2])
    fences.begin()
    fences.add([1])
    assert not fences.code


def test_a_session_knows_the_fences_of_its_tokenizer(session: Session) -> None:
    fences = session.runner.fences
    fences.begin()
    fences.add(session.tokenizer.encode("as in\n```python\n"))
    assert fences.code
