"""What a folder of a checkpoint says of itself, and that it is asked once."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
import transformers

from specchat.engine import files
from specchat.engine.loading import load
from specchat.engine.memory.devices import half_on_cpu
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.stacks import by_turns, is_stack, of_turns, renamed, unstacked
from specchat.models.about import about_folder
from tests.engine.causal import AutoModelForCausalLM
from tests.engine.tiny import FAMILIES, checkpoint, on_cpu, perturbed


def with_dtype(folder: Path, **keys: object) -> Checkpoint:
    path = checkpoint(folder) / "config.json"
    config = json.loads(path.read_text())
    del config["torch_dtype"]
    path.write_text(json.dumps(config | keys))
    return Checkpoint.open(folder)


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({"torch_dtype": "float16"}, torch.float16),
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, torch.bfloat16),
        ({"dtype": "float32"}, torch.float32),
        ({"dtype": "float8_e4m3fn"}, None),
        ({}, None),
    ],
)
def test_the_dtype_decides_what_is_held_on_the_cpu(
    keys: dict[str, object], dtype: torch.dtype | None, tmp_path: Path
) -> None:
    opened = with_dtype(tmp_path, **keys)
    assert opened.dtype == dtype
    assert half_on_cpu(opened) == (dtype in (torch.float16, torch.bfloat16))


def test_every_file_is_read_once_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = checkpoint(tmp_path / "target")
    (target / "generation_config.json").write_text("{}")
    draft = perturbed(tmp_path / "draft", target, 0.1)
    read: Counter[Path] = Counter()
    whole = files.read_text

    def counted(path: Path, most: int) -> str:
        read[path] += 1
        return whole(path, most)

    monkeypatch.setattr(files, "read_text", counted)
    load(PairSpec("p", "P", on_cpu(target), on_cpu(draft)), lambda _: None)
    settings = {"config.json", "generation_config.json", "tokenizer_config.json"}
    assert read == {folder / name: 1 for folder in (target, draft) for name in settings}


def test_the_pair_before_is_kept_where_there_are_no_weights(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    (folder / "model.safetensors").unlink()
    given_up: list[bool] = []
    with pytest.raises(Exception, match=r"holds no model\.safetensors"):
        load(PairSpec("p", "P", on_cpu(folder)), lambda _: None, lambda: given_up.append(True))
    assert not given_up


@pytest.mark.rotated(2)
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"nemotron_h"}))
def test_a_recipe_names_what_transformers_stores(family: str, tmp_path: Path) -> None:
    """But for the modules of Nemotron-H, whose names are not those of its files."""
    recipe = Checkpoint.open(checkpoint(tmp_path, **FAMILIES[family])).config.recipe
    own = recipe.per_layer
    norms = (recipe.norm, *([own.norm] if own else []), *(norm for layer in recipe.layers for norm in layer.norms))
    named = {name: shape for norm in norms for name, shape in norm.shapes.items()}
    named |= {name: shape for layer in recipe.layers for name, shape in layer.vectors.items()}
    for matrix in (recipe.embed, recipe.head, *([own.table, own.project] if own else []), *recipe.matrices):
        named |= {f"{name}.weight": (outputs, matrix.inputs) for name, outputs in matrix.parts}
        named |= {f"{name}.bias": (outputs,) for name, outputs in matrix.parts if matrix.bias}
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    stored = dict[str, tuple[int, ...]]()
    for name, tensor in theirs.state_dict().items():
        shape = tuple(tensor.shape)
        end, part = by_turns(name, theirs.state_dict())
        name = renamed(name)
        experts = of_turns(name, end, part, shape) if end else unstacked(name, shape, False) if is_stack(name) else ()
        stored |= {expert: rows.shape(shape) for expert, rows in experts} or {name: shape}
    if recipe.tied:
        del stored["lm_head.weight"]
    assert named == stored


@pytest.mark.parametrize("index", ["{", '{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}'])
@pytest.mark.parametrize("parts", [0, 1])
def test_one_file_goes_before_what_an_index_says(index: str, parts: int, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(index)
    for part in range(parts):
        (folder / f"model-0000{part + 1}-of-00002.safetensors").write_bytes(b"stale")
    AutoModelForCausalLM.from_pretrained(folder)
    assert Checkpoint.open(folder).shards == (folder / "model.safetensors",)
    about = about_folder(folder, "x")
    assert (about.size, about.why_not) == ((folder / "model.safetensors").stat().st_size, "")
