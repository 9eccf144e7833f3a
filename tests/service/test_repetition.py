"""Replies that repeat themselves, and texts that only look so: tables, drawings, numbers, lists and code."""

from pathlib import Path

import pytest

from specchat.service.repetition import FENCE, LEAST_LENGTH, repeats_itself

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "unit",
    [
        "The home of ",
        "I'm sorry, I can't do that. ",
        "ha ",
        "- The moon is a big stone.\n",
        "The moon is bright.\n\nThe sun is bright.\n\n",
        "Der Mond ist hell, und die Sonne ist heller, und ",
        "月亮是圆的，",
    ],
)
def test_a_text_that_goes_round_is_told(unit: str) -> None:
    reply = "Tell me about the moon. " + unit * (LEAST_LENGTH // len(unit) + 4)
    assert repeats_itself(reply)
    assert repeats_itself("```\ncode\n```\n" + reply)
    assert not repeats_itself(reply[: LEAST_LENGTH // 2])
    assert not repeats_itself(reply + "It is far away.")
    assert not repeats_itself(f"```\n{reply}"), "within code"


@pytest.mark.parametrize(
    "row",
    [
        "| yes | no | it is not known |\n",
        "  | a word | another word |\n",
        "|---|---|\n",
        "yes\tit is not known\n",
        "yes, no, unknown\n",
        "0, ",
        "0 1 1 0 1\n",
        "1. 3.5 kg\n",
        "on page 12,345,678,901\n",
        '{"name": "x", "value": 0},\n',
        "<li>item of a list</li>\n",
        "- Apple\n",
        "- [ ] Apple\n",
        "=-=-",
        "*   *   ",
        "/\\_/\\  ",
        "    pass\n",
        "\n",
        " ",
        "█",
        "-----+-----+\n",
    ],
)
def test_equal_rows_are_no_loop(row: str) -> None:
    assert not repeats_itself("Here you are:\n\n" + row * (2 * LEAST_LENGTH // len(row) + 8))


@pytest.mark.parametrize("times", [2, 3])
def test_a_verse_is_repeated_a_few_times(times: int) -> None:
    assert not repeats_itself(
        "Row, row, row your boat, gently down the stream, merrily, merrily, life is but a dream.\n" * times
    )


@pytest.mark.parametrize("pattern", ["docs/**/*.md", "specchat/engine/kernels/*.py", "tests/kernels/*.py", "*.toml"])
def test_no_page_and_no_source_of_this_project_is_taken_for_a_loop(pattern: str) -> None:
    for path in ROOT.glob(pattern):
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        assert not any(repeats_itself(text[:end]) for end in range(0, len(text), LEAST_LENGTH // 2)), path
