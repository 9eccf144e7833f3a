"""Passages of long files: found by the words of a question, in their order, with what to cite, within their room."""

import pytest

from specchat.attachments.files import Attachment
from specchat.attachments.passages import LONG, fitted

PAGES = "".join(f"[page {number}]\n{'This page is about ' + word + '. ' * 300}\n\n" for number, word in enumerate(
    ("nothing", "lamps", "foxes", "owls", "rivers", "trees"), 1))  # fmt: skip
PAPER = Attachment("a.pdf", PAGES)


def test_what_fits_goes_along_whole() -> None:
    files = (PAPER, Attachment("b", "x"))
    assert fitted("foxes", files, len(PAGES) + 1) == files
    assert fitted("foxes", files, len(PAGES))[1] == files[1]
    assert fitted("", (), 10) == ()


@pytest.mark.parametrize(("question", "pages"), [
    ("Where do foxes and owls live?", [1, 3, 4]), ("What of a lamp?", [1, 2]), ("zebras", [1, 2, 3]),
])  # fmt: skip
def test_pages_with_words_of_the_question_are_taken_in_their_order(question: str, pages: list[int]) -> None:
    (cut,) = fitted(question, (PAPER,), 2_700)
    shown = [int(line[6:-1]) for line in cut.text.splitlines() if line.startswith("[page ")]
    assert shown[:2] == pages[:2]
    assert shown == sorted(shown)
    assert cut.text.startswith(f"[{len(shown)} of 6 passages of this file")
    assert ("no word of the question" in cut.text) == (question == "zebras")
    assert len(cut.text) <= 2_700
    assert cut.whole == len(PAGES)
    assert cut.name == "a.pdf"


def test_lines_are_named_and_no_text_is_lost() -> None:
    lines = "".join(f"line {number} of a long file\n" for number in range(1, 401))
    (cut,) = fitted("What is line 399?", (Attachment("a.txt", lines),), 2 * LONG + 500)
    assert "[lines 1 to " in cut.text
    assert "line 399 of a long file\n" in cut.text
    first = cut.text.index("[lines 1 to ")
    assert "line 1 of a long file\n" in cut.text[first:]
    (whole,) = fitted("line", (Attachment("a.txt", lines),), len(lines) - 1)
    for line in cut.text.splitlines():
        if line.startswith("line "):
            assert f"{line}\n" in lines
    assert whole.whole == len(lines)


def test_a_line_without_end_and_any_characters_are_cut() -> None:
    text = "ab\0c" * 10_000 + " owl"
    (cut,) = fitted('owl" OR NEAR(', (Attachment("a", text),), 4_000)
    assert len(cut.text) <= 4_000
    assert fitted("x", (Attachment("a", text),), 0)[0].text.startswith("[0 of ")


def test_what_is_before_a_line_like_a_page_s_is_not_lost() -> None:
    text = "the owl\n" + "a word\n" * 900 + "[page 7]\n" + "a word\n" * 900
    (cut,) = fitted("owl", (Attachment("a", text),), 2_000)
    assert "the owl" in cut.text
    assert "[lines 1 to " in cut.text


def test_a_file_without_a_word_has_no_passages() -> None:
    assert fitted("owl", (Attachment("a", " \n" * 400),), 300)[0].text.startswith("[0 of 0")


def test_short_files_stay_whole_beside_a_long_one() -> None:
    short, long = Attachment("s", "y" * 900), Attachment("l", "word \n" * 5_000)
    cut = fitted("word", (long, short), 5_000)
    assert cut[1] == short
    assert 3_000 < len(cut[0].text) <= 4_100
