"""The table of what every strategy brings, and the page that shows it."""

import copy
from typing import Any

import pytest

from measure.brought import table


def contender(name: str, times: float | None, identical: int = 3) -> dict[str, Any]:
    def spread(value: float) -> dict[str, float]:
        return {"median": value, "low": value - 0.25, "high": value + 0.25}

    return {
        "contender": name,
        "prompts": 3,
        "identical": identical,
        "tokens_per_second": spread(1000 * (times or 1)),
        "speedup_vs_plain": None if times is None else spread(times),
        "whole_speedup_vs_plain": None if times is None else spread(times - 0.5),
        "mean_acceptance_length": 3.14159,
        "tested_acceptance_rate": 0.8765,
    }


FIGURES: dict[str, Any] = {
    "machine": "a day, a processor",
    "repeats": 2,
    "tokens": 96,
    "replies": [{"prompt": name} for name in "aabbcc"],
    "contenders": [contender("plain", None), contender("draft x5", 2.0)],
    "categories": {
        "chat": [contender("plain", None), contender("draft x5", 1.75)],
        "code": [contender("plain", None), contender("draft x5", 2.5)],
    },
}


def test_a_row_is_what_was_measured() -> None:
    told, _, heads, _, row = table("specchat bench", FIGURES).splitlines()
    assert told.startswith("`specchat bench`; a day, a processor. 3 prompts, 2 replies each, at most 96 tokens.")
    assert told.endswith("Plain writes 1,000 tokens/s.")
    assert heads.endswith("| accepted of tested | chat | code |")
    assert row == "| draft x5 | 2,000 | **2.00** | 1.75-2.25 | 1.50 | 3.14 | 88% | 1.75 | 2.50 |"


def test_another_text_than_plains_makes_no_table() -> None:
    wrong = copy.deepcopy(FIGURES)
    wrong["contenders"][1]["identical"] = 2
    with pytest.raises(ValueError, match="draft x5 wrote another text"):
        table("specchat bench", wrong)
