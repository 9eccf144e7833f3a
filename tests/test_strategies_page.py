"""The page of strategies, and their lists on other pages."""

import re

import pytest

from measure.strategies import PAGE, page
from specchat.engine.backends import DEFAULT_BACKEND, HF_BACKEND, declared
from specchat.engine.strategies import HEADED, STRATEGIES


def usable(backend: str, draft: bool) -> set[str]:
    """The strategies of a pair with or without a draft model, and without heads."""
    pair = declared(draft, (), backend)
    return {name for name, one in STRATEGIES.items() if not one.unsupported(pair)} - set(HEADED)


LISTS = [
    ("cli.md", "| `strategy` |", set(STRATEGIES)),
    ("models-toml.md", "| `pair.strategy` |", set(STRATEGIES)),
    (
        "models.md",
        "Without a draft model, with the strategies that need none",
        usable(DEFAULT_BACKEND, False) - {"plain"},
    ),
    ("transformers.md", "| full attention, sliding windows |", usable(HF_BACKEND, True)),
]
"""Pages, the beginning of a line there that lists strategies, and which."""


@pytest.mark.parametrize(("name", "beginning", "names"), LISTS, ids=[name for name, *_ in LISTS])
def test_lists_on_other_pages_are_complete(name: str, beginning: str, names: set[str]) -> None:
    lines = PAGE.with_name(name).read_text("utf-8").splitlines()
    line = next(line for line in lines if line.startswith(beginning))
    assert {word for word in re.findall(r"`([a-z0-9-]+)`", line) if word in STRATEGIES} == names


def test_the_page_is_what_the_descriptors_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m measure.strategies"


def test_every_strategy_tells_its_paper_and_when_it_pays() -> None:
    for name in STRATEGIES.keys() - {"plain"}:
        assert "*Pays*" in STRATEGIES[name].notes, name
    told = {name for name, one in STRATEGIES.items() if re.search(r"\b20[12]\d\b", one.notes)}
    assert set(STRATEGIES) - told == {"plain", "eagle3-tree", "ngram", "cascade"}, "those of other papers, and our own"
