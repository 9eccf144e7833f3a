"""Lines by which clients use a pair: those of the page, in forms that their programs read."""

import json
import tomllib
from pathlib import Path

import pytest

from specchat.serve.recipes import RECIPES

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
ROOT, MODEL, CONTEXT = "http://127.0.0.1:8642", "qwen3-coder-30b-a3b", 65_536


@pytest.mark.parametrize("name", RECIPES)
def test_the_page_has_the_lines_of_the_program(name: str) -> None:
    recipe = RECIPES[name]
    lines = recipe.filled(ROOT, MODEL, CONTEXT)
    page = PAGE.read_text(encoding="utf-8")
    assert f"## {recipe.title}\n\n{recipe.where[0].upper()}{recipe.where[1:]}:\n" in page
    assert f"\n{lines}\n```" in page
    assert ROOT in lines
    assert all(field not in lines for field in ("{root}", "{model}", "{context}"))


def test_settings_are_files_of_their_kind() -> None:
    for name in ("opencode", "llama.vscode", "zed"):
        json.loads(RECIPES[name].filled(ROOT, MODEL, CONTEXT))
    codex = tomllib.loads(RECIPES["codex"].filled(ROOT, MODEL, CONTEXT))
    assert codex["model_providers"][codex["model_provider"]]["base_url"] == f"{ROOT}/v1"
    assert codex["model_context_window"] == CONTEXT
