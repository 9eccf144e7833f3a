"""The pairs that the documentation shows can be declared."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from specchat.config.paths import shipped
from specchat.engine.backends import BACKENDS, GGUF_BACKEND

DOCS = Path(__file__).parents[2] / "docs"
MARK = "```"


def shown(page: Path) -> Iterator[str]:
    """What a page shows of models.toml, block by block."""
    for block in page.read_text("utf-8").split(f"{MARK}toml\n")[1:]:
        text = block.partition(MARK)[0]
        if "[[pair]]" in text:
            yield text


BLOCKS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, text in enumerate(shown(page), 1)
]


def read(text: str, folder: Path) -> Path:
    file = folder / "models.toml"
    file.write_text(text if text.startswith("schema") else f"schema = 1\n{text}", encoding="utf-8")
    return file


@pytest.mark.parametrize("text", BLOCKS)
def test_what_is_shown_is_read(text: str, tmp_path: Path) -> None:
    load_catalog(read(text, tmp_path))


def test_the_page_of_models_shows_every_kind_of_pair(tmp_path: Path) -> None:
    specs = []
    for text in shown(DOCS / "models.md"):
        (pair,) = tomllib.loads(text)["pair"]
        specs.append(load_catalog(read(text, tmp_path)).find(pair["id"]).spec)
    # What llama.cpp runs is on the page of GGUF files.
    assert {spec.backend for spec in specs} == {*BACKENDS} - {GGUF_BACKEND}
    assert any(spec.target.file for spec in specs)
    assert any(spec.target.quant for spec in specs)
    assert any(spec.draft is None for spec in specs)
    mixed = [spec for spec in specs if spec.target.is_gguf and spec.draft and not spec.draft.is_gguf]
    assert mixed
    assert any(spec.draft_vocabulary for spec in specs)
    assert any(spec.trust_remote_code for spec in specs)


def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    text = next(shown(DOCS / "models.md")).replace("target", "tarket")
    with pytest.raises(ConfigError, match="tarket"):
        load_catalog(read(text, tmp_path))


def test_the_heads_that_shipped_pairs_name_can_be_taken_in(tmp_path: Path) -> None:
    """As comments become keys."""
    lines = shipped("models.toml").read_text("utf-8").splitlines()
    named = re.compile(r"# (\[pair\.heads\]|[\w-]+ = \{ repo)")
    text = "\n".join(line[2:] if named.match(line) else line for line in lines)
    catalog = load_catalog(read(text[text.index("schema") :], tmp_path))
    assert sum(line.startswith("# [pair.heads]") for line in lines) == 8
    assert catalog.find("qwen3-8b").spec.heads.keys() == {"dflash", "eagle3", "peagle"}
    listed = (DOCS / "heads.md").read_text("utf-8")
    for pair in catalog.pairs:
        assert all(source.repo is None or f"`{source.repo}`" in listed for source in pair.spec.heads.values())
