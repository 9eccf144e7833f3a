"""Of a checkpoint that reads images too the text part runs, by the names of any version of transformers."""

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MuseGlimmerConfig,
    MuseGlimmerForConditionalGeneration,
)

from specchat.engine.loading import load
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
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


PIXTRAL = VISION | {"model_type": "pixtral", "head_dim": 16}
MISTRAL3 = Mistral3Config(
    text_config=TEXT | {"model_type": "mistral"}, vision_config=PIXTRAL, tie_word_embeddings=False
)
GEMMA3 = Gemma3Config(text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4, tie_word_embeddings=False)


@pytest.mark.parametrize("stored", ["head", "table", "nothing"])
@pytest.mark.parametrize("kind", [Mistral3ForConditionalGeneration, Gemma3ForConditionalGeneration])
def test_embeddings_are_tied_where_transformers_ties_them(kind: Any, stored: str, tmp_path: Path) -> None:
    """The whole's setting counts before that of the text part, and a head that is stored before both."""
    torch.manual_seed(3)
    made = kind(MISTRAL3 if kind is Mistral3ForConditionalGeneration else GEMMA3)
    for name, weight in made.named_parameters():
        weight.data.normal_(std=0.1 if "norm" in name else 1.3 * weight.shape[-1] ** -0.5)
    made.save_pretrained(tmp_path)
    settings, weights = json.loads((tmp_path / "config.json").read_text()), load_file(tmp_path / "model.safetensors")
    (head,), (table,) = ([name for name in weights if end in name] for end in ("lm_head", "embed_tokens"))
    if stored == "nothing":
        del weights[head]
    elif stored == "table":
        weights[head] = weights[table].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ids = tokens(20)
    for outer, inner in product((True, False, None), repeat=2):
        for place, tied in ((settings, outer), (settings["text_config"], inner)):
            place.pop("tie_word_embeddings", None)
            if tied is not None:
                place["tie_word_embeddings"] = tied
        (tmp_path / "config.json").write_text(json.dumps(settings))
        opened = Checkpoint.open(tmp_path)
        if stored == "nothing" and outer is False:
            assert not opened.config.tied
            continue
        whole, model = kind.from_pretrained(tmp_path, dtype=torch.float32), host_model(opened)
        assert stored != "head" or not opened.config.tied
        with torch.no_grad():
            theirs = whole(torch.tensor([ids])).logits[0]
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
