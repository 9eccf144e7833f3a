"""The sentence that says what to do."""

import pytest

from specchat.bench.summary import CONTROL, MIN_PROMPTS, verdict


@pytest.mark.parametrize(
    ("prompts", "measured", "words"),
    [
        (
            MIN_PROMPTS,
            {"auto": 1.2, "draft x4": 1.5},
            "for prompts like these choose draft; auto wrote at 1.20x plain, and",
        ),
        (
            MIN_PROMPTS - 1,
            {"auto": 1.2, "draft x4": 1.5},
            "draft x4, at 1.50x, but 31 prompts do not tell which is faster",
        ),
        (1, {"auto": 1.2, "draft x4": 1.5}, "leave the strategy at auto for now"),
        (1, {"auto x8": 1.47, "draft x4": 1.5}, "leave the strategy at auto; auto wrote at 1.47x plain"),
        (
            MIN_PROMPTS,
            {"auto": 0.9, "draft x4": 0.8},
            "choose plain; auto wrote at 0.90x plain, and nothing else beats plain",
        ),
        (MIN_PROMPTS, {"auto": 0.99, CONTROL: 1.05}, "leave the strategy at auto"),
        (MIN_PROMPTS, {"draft x4": 1.5, "lookup x8": 1.1}, "of these choose draft, 1.50x plain; auto was not measured"),
        (MIN_PROMPTS, {"draft x4": 1.01}, "choose plain; nothing that was measured is faster"),
    ],
)
def test_it_agrees_with_the_figures(prompts: int, measured: dict[str, float], words: str) -> None:
    said = verdict({"plain": 1.0} | measured, prompts)
    assert words in said
    assert said.startswith("What to do here: ")
    assert said.count(".\n") == 0
    assert said.endswith(".")


def test_of_plain_alone_nothing_is_said() -> None:
    assert verdict({"plain": 1.0, CONTROL: 1.0}, MIN_PROMPTS) == ""
