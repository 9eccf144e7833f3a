"""Of a checkpoint that reads images too the text part runs, by the names of any version of transformers."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    MuseGlimmerConfig,
    MuseGlimmerForConditionalGeneration,
)

from specchat.engine.loading import load
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.pair import PairSpec
from specchat.engine.runners.host import host_model
from tests.engine.test_decoder import tokens
from tests.engine.tiny import VOCAB, checkpoint, on_cpu

TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 8,
    "sliding_window_pattern": 3,
    "max_position_embeddings": 256,
    "eos_token_id": 256,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sees")
    torch.manual_seed(1)
    model = Gemma3ForConditionalGeneration(Gemma3Config(text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4))
    for name, weight in model.named_parameters():
        weight.data.normal_(std=0.1 if "norm" in name else 1.3 * weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("names", [("", ""), ("model.language_model.", "language_model.model.")])
def test_its_logits_are_those_of_transformers(names: tuple[str, str], saved: Path, tmp_path: Path) -> None:
    old, new = names
    weights = load_file(saved / "model.safetensors")
    stored = {name.replace(old, new, 1) if old else name: weight for name, weight in weights.items()}
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((saved / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings))
    opened, ids = Checkpoint.open(tmp_path), tokens(60)
    model = host_model(opened)
    assert opened.also_sees
    whole = Gemma3ForConditionalGeneration.from_pretrained(saved, dtype=torch.float32)
    with torch.no_grad():
        theirs = whole(torch.tensor([ids])).logits[0]
    assert theirs.std() > 0.3
    torch.testing.assert_close(model.logits(model.forward(ids, 0)), theirs, atol=2e-4, rtol=1e-4)


def test_muse_writes_what_transformers_writes(tmp_path: Path) -> None:
    """By the whole model, whose text part is in no other class; the fifth layer from the last sees all."""
    torch.manual_seed(2)
    text = TEXT | {"num_hidden_layers": 5, "output_multiplier": 0.9, "final_logit_softcapping": 4.0}
    whole = MuseGlimmerForConditionalGeneration(MuseGlimmerConfig(text_config=text, vision_config=VISION))
    for name, weight in whole.named_parameters():
        weight.data.normal_(std=0.2 if "norm" in name else 1.3 * weight.shape[-1] ** -0.5)
    whole.save_pretrained(tmp_path)
    opened, ids = Checkpoint.open(tmp_path), tokens(30)
    model = host_model(opened)
    assert [layer.mixer.window for layer in opened.config.recipe.layers] == [0, 8, 8, 8, 0]
    with torch.no_grad():
        theirs = whole(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(model.logits(model.forward(ids, 0)), theirs, atol=2e-4, rtol=1e-4)
    made = whole.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=256)[0].tolist()
    for place in range(len(ids), len(made)):
        assert model.next_logits(made[place - 1], place - 1).argmax() == made[place]


def test_that_images_are_not_read_is_told(saved: Path, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    assert load(PairSpec("p", "P", on_cpu(folder)), lambda _: None).info.note == ""
    for file in saved.iterdir():
        shutil.copy(file, folder / file.name)
    note = load(PairSpec("p", "P", on_cpu(folder)), lambda _: None).info.note
    assert note == "the text part of a model that reads images; images are not read"
