"""The page that shows what `bench --decide` prints."""

import pytest

from measure.decide import BEGIN, END, PAGE, page


def test_what_was_printed_replaces_what_was_there() -> None:
    text = f"before\n{BEGIN}old\n{END}after\n"
    made = page(text, "specchat bench --decide", "  new\ntable\n\n")
    assert made == f"before\n{BEGIN}```text\n$ specchat bench --decide\nnew\ntable\n```\n{END}after\n"
    assert page(made, "specchat bench --decide", "  new\ntable\n\n") != text


@pytest.mark.parametrize("text", ["before\n", f"{BEGIN}open", f"{END}"])
def test_a_page_without_its_marks_is_not_written(text: str) -> None:
    with pytest.raises(ValueError, match="lacks its marks"):
        page(text, "specchat bench --decide", "new")


def test_the_page_holds_a_measurement() -> None:
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    measured, mark, _ = rest.partition(END)
    assert mark
    for words in ("$ specchat bench --decide", "Who should draft, and how far", "all prompts", "In words:"):
        assert words in measured
