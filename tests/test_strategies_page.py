"""README's table of strategies and the page that it leads to."""

import re

from measure.strategies import PAGE, page
from specchat.engine.strategies import STRATEGIES

SECTIONS = dict(
    re.findall(
        r"^## ([a-z0-9-]+)\n\n(.*?)(?=\n## |\Z)",
        (PAGE.parent / "docs" / "strategies.md").read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
)


def test_readme_is_what_the_rows_say() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(text), "run python -m measure.strategies"


def test_every_strategy_has_its_part_in_the_rows_order() -> None:
    assert [name for name in SECTIONS if name in STRATEGIES] == list(STRATEGIES)


def test_every_family_tells_its_paper_and_when_it_pays() -> None:
    for name in STRATEGIES.keys() - {"plain"}:
        assert "*Pays*" in SECTIONS[name], name
    told = {name for name, text in SECTIONS.items() if re.search(r"\b20[12]\d\b", text)}
    assert set(STRATEGIES) - told == {"plain", "eagle3-tree", "ngram", "cascade"}, "those of other papers, and our own"
