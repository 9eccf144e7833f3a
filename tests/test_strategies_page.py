"""The page of strategies."""

import re

from measure.strategies import PAGE, page
from specchat.engine.strategies import STRATEGIES


def test_the_page_is_what_the_descriptors_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m measure.strategies"


def test_every_strategy_tells_its_paper_and_when_it_pays() -> None:
    for name in STRATEGIES.keys() - {"plain"}:
        assert "*Pays*" in STRATEGIES[name].notes, name
    told = {name for name, one in STRATEGIES.items() if re.search(r"\b20[12]\d\b", one.notes)}
    assert set(STRATEGIES) - told == {"plain", "eagle3-tree", "ngram", "cascade"}, "those of other papers, and our own"
