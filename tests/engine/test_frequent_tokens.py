"""What a draft vocabulary is made of."""

from pathlib import Path

import pytest

from specchat.engine.text.tokenizer import Tokenizer
from specchat.tune.frequent_tokens import always, covered, frequent
from tests.engine.tiny import FIRST_BYTE, SPECIAL, byte_fallback, checkpoint, tokenizer


def test_bytes_and_ends_are_always_in(tmp_path: Path) -> None:
    level = Tokenizer.read(checkpoint(tmp_path / "level"))
    assert always(level, {256}) == set(range(256 + len(SPECIAL)))
    fallback = Tokenizer.read(checkpoint(tmp_path / "fallback", backend=byte_fallback()))
    after = FIRST_BYTE + 256
    assert always(fallback, {after + 9}) == {1, *range(FIRST_BYTE, after + len(SPECIAL)), after + 9}
    assert tokenizer().token_to_id("5") in always(level, ())


def test_the_frequent_come_first_and_the_lowest_fill_up() -> None:
    replies = [[7, 7, 7, 5], [9, 5]]
    assert frequent(replies, {8}, 4, 10) == [7, 5, 9, 8]
    assert frequent(replies, {8}, 6, 10) == [7, 5, 9, 0, 1, 8]
    assert frequent([[3, 8, 8]], {8}, 2, 10) == [8, 3]


def test_what_is_covered_is_told_of_other_replies() -> None:
    assert covered([[7, 7], [7, 7, 6]], {8}, 2, 10) == pytest.approx(4 / 5)
    assert covered([[7], [6], [8, 9], [6]], {8}, 2, 10) == pytest.approx(1 / 5)
    assert covered([[7, 7]], {8}, 2, 10) is None
    assert covered([], {8}, 2, 10) is None
