"""The beginnings of messages in the list of chats."""

import pytest

from specchat.chat.preview import preview


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("## What she *read*\n\n1. **One** of `two`", "What she read 1. One of two"),
        ("```python\nprint(a_b * c_d)\n```", "print(a_b * c_d)"),
        ("- [x] done\n- [ ] [a link](https://x.y)\n> quoted", "done a link quoted"),
        ("| a | b |\n|---|:--|\n| 1 | 2 |", "| a | b | | 1 | 2 |"),
        ("2 * 3 * 4 = 24, snake_case_name, -5", "2 * 3 * 4 = 24, snake_case_name, -5"),
        ("***both*** ~~gone~~ __strong__", "both gone strong"),
        ("**cut", "cut"),
        ("---\n\n", ""),
        ("a\x1b[2J\nb", "a␛[2J b"),
        ("Let $a_1 \\le \\alpha$ hold:\n$$x^2$$", "Let a₁ ≤ α hold: x²"),
        ("it costs $5 and \\$6, a\\*b", "it costs $5 and \\$6, a\\*b"),
        (r"as \(\nosuch{a}\) says", r"as \nosuch{a} says"),
        ("x" * 200, "x" * 119 + "…"),
    ],
)
def test_marks_are_left_out(text: str, shown: str) -> None:
    assert preview(text) == shown
