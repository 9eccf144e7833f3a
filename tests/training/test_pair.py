"""The shipped pair is complete, small, and the same model for every loader."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from training import judge
from training.export import load
from training.make_demo import DEMO
from training.prompts import COUNTS, held_out_prompts
from training.tokenizer import load as load_tokenizer

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize("name", ["target", "draft"])
def test_files_and_weights(name):
    folder = DEMO / name
    assert {path.name for path in folder.iterdir()} == FILES
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert all(weights.get_tensor(key).dtype == torch.float16 for key in weights.keys())  # noqa: SIM118
        assert all(torch.isfinite(weights.get_tensor(key)).all() for key in weights.keys())  # noqa: SIM118


def test_both_together_are_small():
    assert sum((DEMO / name / "model.safetensors").stat().st_size for name in ("target", "draft")) <= 40_000_000


@pytest.mark.parametrize("name", ["target", "draft"])
def test_logits_equal_those_of_transformers(name):
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(DEMO / name, dtype=torch.float32).eval()
    ours = load(DEMO / name)
    tokens = torch.randint(6, 3072, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(ours(tokens)[0], theirs(tokens).logits, atol=1e-3)


def test_sums_to_twenty_are_right_or_declined():
    tokenizer = load_tokenizer(DEMO / "target" / "tokenizer.json")
    found = judge.sums(load(DEMO / "target"), tokenizer)
    assert sum(found.values()) == 50
    assert found["wrong"] == 0
    assert found["right"] > 40


def test_a_cache_changes_nothing():
    model = load(DEMO / "draft")
    tokens = torch.randint(6, 3072, (1, 24), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        whole, _ = model(tokens)
        _, past = model(tokens[:, :10])
        rest, _ = model(tokens[:, 10:], past)
    assert torch.allclose(whole[:, 10:], rest, atol=1e-3)


def test_prompts_are_held_out_and_of_every_category():
    stored = [json.loads(line) for line in (DEMO / "prompts.jsonl").read_text("utf-8").splitlines()]
    assert len(stored) == 240 == len({prompt["id"] for prompt in stored})
    for category, (_, count) in COUNTS.items():
        assert sum(prompt["category"] == category for prompt in stored) == count
    assert COUNTS["copy"][1] + COUNTS["edit"][1] >= 40
    assert all(prompt["messages"][-1]["role"] == "user" for prompt in stored)
    assert any(len(prompt["messages"]) > 2 for prompt in stored)
    assert any(prompt["messages"][0]["role"] == "system" for prompt in stored)


def test_prompts_come_from_their_seed():
    assert len(held_out_prompts()) == 240


def test_the_paths_are_inside_the_package():
    assert Path("specchat/demo") == DEMO.relative_to(DEMO.parents[1])
