"""Parts of pages that come from the code are as the code has them, and those of measurements are there."""

import re
from pathlib import Path

import pytest

from measure import backends, pages
from measure.pages import DOCS, PARTS, marks, shown
from specchat.engine import families, formats
from specchat.engine.backends import BACKENDS, DEFAULT_BACKEND, HF_BACKEND, UNSUPPORTED, declared
from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.int4 import PACKINGS
from specchat.engine.strategies import HEADED, HEADS, STRATEGIES


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.derived])
def test_a_part_is_what_the_code_says(name: str) -> None:
    assert shown(name) == PARTS[name].make(()), "run python -m measure.pages"


def test_a_part_is_written_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end = marks("backends")
    page = tmp_path / PARTS["backends"].file
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    monkeypatch.setitem(UNSUPPORTED, "hf", {"drafting": "it was asked not to"})  # type: ignore[misc]
    page.write_text(f"before\n{begin}old\n{end}after\n")
    pages.write("backends")
    assert "no: it was asked not to" in page.read_text()
    assert page.read_text() == f"before\n{begin}{backends.table()}{end}after\n"
    for text in ("before\n", f"{begin}open", end):
        page.write_text(text)
        with pytest.raises(ValueError, match="lacks the marks"):
            pages.write("backends")
        assert page.read_text() == text


def test_measurements_are_there() -> None:
    rows = {line.split()[1] for line in shown("brought").splitlines() if line.startswith("| ")} - {"strategy", "---"}
    assert {"auto", "draft", "cascade", "lookup", "eagle3", "early-exit"} < rows < STRATEGIES.keys()
    for words in ("$ specchat bench --decide", "Who should draft, and how far", "all prompts", "In words:"):
        assert words in shown("decide")
    assert "| draft x5 |" in shown("drafted")


def test_every_strategy_and_backend_is_told_and_every_refusal_has_its_reason() -> None:
    rows = {line.split(" | ")[0].strip("| `"): line for line in shown("backends").splitlines() if line[:3] == "| `"}
    assert set(rows) == set(STRATEGIES)
    for at, backend in enumerate(BACKENDS, 1):
        told = {name: row.strip("| ").split(" | ")[at] for name, row in rows.items()}
        reasons = {name: one.unsupported(declared(True, HEADS, backend)) for name, one in STRATEGIES.items()}
        assert bool(UNSUPPORTED[backend]) == any(reasons.values())
        for name, reason in reasons.items():
            assert told[name] == f"no: {reason}" if reason else {"yes", "with a draft model", "with its heads"}
        assert f"\n- `{backend}`: " in shown("backends")
    assert list(UNSUPPORTED) == list(BACKENDS)


def usable(backend: str, draft: bool) -> set[str]:
    """The strategies of a pair with or without a draft model, and without heads."""
    pair = declared(draft, (), backend)
    return {name for name, one in STRATEGIES.items() if not one.unsupported(pair)} - set(HEADED)


LISTS = [
    ("cli.md", "| `strategy` |", set(STRATEGIES)),
    ("models-toml.md", "| `pair.strategy` |", set(STRATEGIES)),
    ("models.md", "Without a draft model, with the strategies", usable(DEFAULT_BACKEND, False) - {"plain"}),
    ("transformers.md", "| full attention, sliding windows |", usable(HF_BACKEND, True)),
]
"""Pages, the beginning of a line there that lists strategies, and which."""


@pytest.mark.parametrize(("name", "beginning", "names"), LISTS, ids=[name for name, *_ in LISTS])
def test_lists_of_strategies_are_complete(name: str, beginning: str, names: set[str]) -> None:
    line = next(line for line in (DOCS / name).read_text("utf-8").splitlines() if line.startswith(beginning))
    assert {word for word in re.findall(r"`([a-z0-9-]+)`", line) if word in STRATEGIES} == names


def test_the_tables_of_files_name_every_weight_format_and_families_that_there_are() -> None:
    modules = {type(one).__module__.rpartition(".")[2] for one in formats.known()}
    listed = re.findall(r"^\| `(\w+)\.py` \|", (DOCS / "weight-formats.md").read_text("utf-8"), re.MULTILINE)
    assert set(listed) == modules
    lines = (DOCS.parent / "README.md").read_text("utf-8").splitlines()
    safetensors, of_gguf = (
        next(one for one in lines if one.startswith(f"| {kind} ")) for kind in ("safetensors", "GGUF")
    )
    stored = safetensors.partition("as stored (")[2].partition(":")[0].lower().replace("autoround", "auto-round")
    assert {name for name in (modules - {"gguf"}) | PACKINGS.keys() if name not in stored} == set()
    named = safetensors.partition("families.md): ")[2].partition(" and more")[0].split(", ")
    known = " ".join(family.name for family in families.known().values())
    assert len(named) > 5
    assert [name for name in named if name not in known] == []
    types = {
        "IQ" if kind.startswith("IQ") else kind for kind in TYPES if kind[:2] not in ("Q3", "Q4", "Q5", "Q6", "Q8")
    }
    assert types - {*re.findall(r"\w+", of_gguf)} == set()


def test_every_strategy_tells_its_paper_and_when_it_pays() -> None:
    for name in STRATEGIES.keys() - {"plain"}:
        assert "*Pays*" in STRATEGIES[name].notes, name
    told = {name for name, one in STRATEGIES.items() if re.search(r"\b20[12]\d\b", one.notes)}
    assert set(STRATEGIES) - told == {"plain", "eagle3-tree", "ngram", "cascade"}, "those of other papers, and our own"
