"""A family is one file: one from a folder of its own runs, and no other file names a family."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from specchat.engine import families
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import parse_config
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILIES, checkpoint
from tests.families import page

ROOT = Path(__file__).parents[2]
MINE = '''
"""Granite's layers with a factor of their own, by other keys."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import Number


class MySettings(Settings):
    my_factor: Number


def recipe(c):
    return decoder(c, lambda _, prefix: replace(block(c, prefix), residual=c.my_factor))


FAMILY = Family("mine", "Mine", recipe, MySettings)
'''
LINES = 150
"""A family's file has no more."""
ELSEWHERE = (
    "specchat/bench/published.py",
    "specchat/models/drafts.py",
    "specchat/engine/gguf/",
    "specchat/engine/llama_cpp/vocabulary.py",
    "specchat/engine/llama_cpp/export.py",
    "specchat/engine/tool_calls/",
)
"""Tables of published checkpoints, llama.cpp's words, and forms of tool calls."""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "families"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(folder)])
    families.known.cache_clear()
    yield
    families.known.cache_clear()


@pytest.mark.usefixtures("mine")
def test_a_family_of_one_file_runs(tmp_path: Path) -> None:
    granite = FAMILIES["granite"] | {"attention_bias": False, "mlp_bias": False}
    plain = granite | {"embedding_multiplier": 1.0, "attention_multiplier": 0.25, "logits_scaling": 1.0}
    folder = checkpoint(tmp_path / "m", seed=2, **plain)
    ids = tokens(40)
    there = host_model(Checkpoint.open(folder))
    expected = there.logits(there.forward(ids, 0)).clone()
    settings = json.loads((folder / "config.json").read_text())
    mine = settings | {"model_type": "mine", "my_factor": settings["residual_multiplier"]}
    (folder / "config.json").write_text(json.dumps(mine))
    here = host_model(Checkpoint.open(folder))
    assert torch.equal(here.logits(here.forward(ids, 0)), expected)


def test_an_unknown_family_is_told_with_the_known_ones(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": "mine"}))
    with pytest.raises(ForeignModel, match=r"model_type 'mine' is not one .*granite, .*lfm2, .*mimo, .*smollm3"):
        Checkpoint.open(folder)


FOREIGN = {
    "deepseek_v32": "latent attention and attention to chosen tokens",
    "llama4_text": "attention in chunks",
    "qwen4_exp_text": "hyper-connections",
    "bamba": "Mamba layers",
}
"""Families that only transformers runs, and what our decoder would need."""


@pytest.mark.parametrize("kind", FOREIGN)
def test_an_unknown_family_is_told_with_the_feature_that_is_missing(kind: str, tmp_path: Path) -> None:
    """By the keys of its own settings, as transformers writes them, beside those of images too."""
    written = json.loads(AutoConfig.for_model(kind).to_json_string(use_diff=False))
    words = f"model_type '{kind}' needs {FOREIGN[kind]}, which specchat's decoder lacks"
    for settings in (written, {"model_type": kind, "text_config": written}):
        with pytest.raises(ForeignModel, match=words) as told:
            parse_config(tmp_path, settings)
        assert told.value.reason == words


def test_a_list_of_layers_that_turn_has_one_for_each(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **FAMILIES["smollm3"])
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"no_rope_layers": [1, 0]}))
    with pytest.raises(Exception, match="no_rope_layers has 2 values, and num_hidden_layers is 4"):
        Checkpoint.open(folder)


def test_layers_that_turn_go_by_an_interval_where_no_list_is_given(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **FAMILIES["smollm3"])
    settings = json.loads((folder / "config.json").read_text())
    del settings["no_rope_layers"]
    (folder / "config.json").write_text(json.dumps(settings | {"no_rope_layer_interval": 3}))
    turns = [layer.mixer.rope is not None for layer in Checkpoint.open(folder).config.recipe.layers]
    assert turns == [True, True, False, True]


def test_a_config_asks_for_no_more_layers_than_any_model_has(tmp_path: Path) -> None:
    """A recipe would list them all."""
    settings = json.loads((checkpoint(tmp_path / "m") / "config.json").read_text())
    with pytest.raises(ModelError, match="num_hidden_layers is 1000000000, not a number of layers up to 1024"):
        parse_config(tmp_path, settings | {"num_hidden_layers": 10**9})


def test_the_folder_has_files_of_families_alone_and_each_is_small() -> None:
    files = [file for file in Path(families.__file__).parent.glob("*.py") if file.stem != "__init__"]
    assert files
    for file in files:
        text = file.read_text("utf-8")
        assert " = Family(" in text, file
        assert len(text.splitlines()) <= LINES, file


def test_the_page_shows_the_example_as_it_is_and_every_family() -> None:
    page = (ROOT / "docs/families.md").read_text("utf-8")
    example = (Path(families.__file__).parent / "smollm3.py").read_text("utf-8")
    assert f"```python\n{example}```" in page
    assert all(f"| `{kind}` |" in page for kind in families.known())


def test_the_page_shows_what_runs_where() -> None:
    assert page.table() in page.PAGE.read_text("utf-8"), "run python -m tests.families.page"


def test_nothing_else_names_a_family() -> None:
    named = set(families.known())
    # Parsing a file takes a hundred times as long.
    quoted = re.compile(f"[\"'](?:{'|'.join(map(re.escape, named))})[\"']")
    found = {
        f"{file.relative_to(ROOT)}:{node.lineno} {node.value}"
        for file in (ROOT / "specchat").rglob("*.py")
        if not str(file.relative_to(ROOT)).startswith(("specchat/engine/families/", *ELSEWHERE))
        and quoted.search(text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in named
    }
    assert found == set()
