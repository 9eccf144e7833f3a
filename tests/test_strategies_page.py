"""README's table of strategies, and the page that it leads to."""

import re
from pathlib import Path

import pytest

from measure.strategies import PAGES, page
from specchat.engine.strategies import STRATEGIES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_descriptors_say(path: Path) -> None:
    assert path.read_text("utf-8") == page(path), "run python -m measure.strategies"


def test_every_strategy_tells_its_paper_and_when_it_pays() -> None:
    for name in STRATEGIES.keys() - {"plain"}:
        assert "*Pays*" in STRATEGIES[name].notes, name
    told = {name for name, one in STRATEGIES.items() if re.search(r"\b20[12]\d\b", one.notes)}
    assert set(STRATEGIES) - told == {"plain", "eagle3-tree", "ngram", "cascade"}, "those of other papers, and our own"
