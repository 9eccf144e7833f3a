import re

from hypothesis import given
from hypothesis import strategies as st

from specchat.clean import clean, one_line

DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\ud800-\udfff]")
texts = st.text(
    st.one_of(st.characters(), st.characters(max_codepoint=0x9F), st.sampled_from("\x1b\u202e\u2028\ud800"))
)


@given(texts)
def test_nothing_dangerous_is_left(text: str) -> None:
    assert not DANGEROUS.search(clean(text))


@given(texts, texts)
def test_chunks_give_what_the_whole_gives(first: str, second: str) -> None:
    assert clean(first) + clean(second) == clean(first + second)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029\u061c\u200e\u200f")))
def test_ordinary_text_stays(text: str) -> None:
    kept = re.sub("[\u202a-\u202e\u2066-\u206f]", "", text)
    assert clean(text) == kept


def test_escape_is_shown_and_tabs_and_newlines_stay() -> None:
    assert clean("a\x1b[31mb\tc\nd\r\n") == "a␛[31mb\tc\nd\n"


def test_joined_emoji_stay_whole() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert clean(family) == family


def test_one_line_is_short_and_single() -> None:
    assert one_line("a\n b\x1b]52;c;x\x07 " + "y" * 999, 20) == "a b␛]52;c;x yyyyyyy…"
