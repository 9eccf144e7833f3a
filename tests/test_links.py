"""Links between the pages hold, their anchors too."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page's headings, by GitHub's rule: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def broken(page: Path, text: str) -> list[str]:
    """Links in the `text` of a page that lead nowhere."""
    found = []
    for link in LINK.findall(text):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if "://" in link or (target.exists() and (not anchor or anchor in anchors(target))):
            continue
        found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken(page, _prose(page))


def test_broken_links_are_found() -> None:
    page = ROOT / "docs" / "strategies.md"
    text = "[a](auto.md) [b](auto.md#how-it-chooses) [c](nowhere.md) [d](auto.md#nowhere) [e](#nowhere) [f](https://x.y/#z)"
    assert broken(page, text) == ["nowhere.md", "auto.md#nowhere", "#nowhere"]
