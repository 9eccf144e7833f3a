"""The page about the step on a GPU shows what its estimate says, from ceilings that the compile suite holds."""

from pathlib import Path

import pytest

from measure.gpu_estimate import CARDS, floor_ms, step_ms, table

PAGE = Path(__file__).parents[1] / "docs" / "gpu-step.md"


def test_the_page_shows_the_table() -> None:
    assert table() in PAGE.read_text(), "run python -m measure.gpu_estimate"


def test_a_step_takes_no_less_than_its_bytes() -> None:
    """4.65 GB of weights, and 0.07 GB of context: 4.7 ms at 1,008 GB/s."""
    card = next(card for card in CARDS if card.name == "RTX 4090")
    assert floor_ms(card) == pytest.approx(4.7, rel=0.01)
    assert floor_ms(card) < step_ms(card, 1, 1.0) <= step_ms(card, 1, 0.5) < step_ms(card, 16, 0.5)
