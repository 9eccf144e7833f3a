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
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    Glm4vMoeConfig,
    Glm4vMoeForConditionalGeneration,
    Glm46VConfig,
    Glm46VForConditionalGeneration,
    Lfm2VlConfig,
    Lfm2VlForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MuseGlimmerConfig,
    MuseGlimmerForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

from specchat.engine.errors import ModelError
from specchat.engine.loading import load
from specchat.engine.pictures import kinds
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.reference.decoder import ReferenceDecoder
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


DEEP_VISION = {"depth": 1, "hidden_size": 32, "embed_dim": 32, "intermediate_size": 32, "num_heads": 2} | {
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
    "fullatt_block_indexes": [0],
}
OLD_ROPE = {"type": "mrope", "mrope_section": [4, 2, 2]}
NEW_ROPE = {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": True}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "mlp_only_layers": [1]}
GLM_ROPE = {"rope_type": "default", "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
GLM_EXPERTS = {"rope_scaling": GLM_ROPE, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
WHOLE: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen2_vl": (Qwen2VLConfig, Qwen2VLForConditionalGeneration, {"rope_scaling": OLD_ROPE}),
    "qwen2_5_vl": (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, {"rope_scaling": OLD_ROPE}),
    "qwen3_vl": (Qwen3VLConfig, Qwen3VLForConditionalGeneration, {"rope_scaling": NEW_ROPE}),
    "qwen3_vl_moe": (Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration, {"rope_scaling": NEW_ROPE, **EXPERTS}),
    "glm4v": (Glm4vConfig, Glm4vForConditionalGeneration, {"rope_scaling": GLM_ROPE, "pad_token_id": None}),
    "glm46v": (Glm46VConfig, Glm46VForConditionalGeneration, {"rope_scaling": GLM_ROPE, "pad_token_id": None}),
    "glm4v_moe": (Glm4vMoeConfig, Glm4vMoeForConditionalGeneration, GLM_EXPERTS),
    "lfm2_vl": (Lfm2VlConfig, Lfm2VlForConditionalGeneration, {"layer_types": ["conv", "full_attention", "conv"]}),
}
"""Their configurations and models of images and text, and what their settings of text have beside TEXT."""


def config_of(kind: str) -> Any:
    """The configuration of such a model."""
    config, _, more = WHOLE[kind]
    text = TEXT | {"rope_theta": 5000.0, "bos_token_id": None, "hidden_act": "silu"} | more
    return config(text_config=text, vision_config=DEEP_VISION, tie_word_embeddings=False)


def saved_whole(kind: str, folder: Path) -> Path:
    """A model of text and images of `kind` with random weights, as transformers saves it."""
    torch.manual_seed(4)
    made = WHOLE[kind][1](config_of(kind))
    for name, weight in (*made.named_parameters(), *made.named_buffers()):
        if "norm" in name or "bias" in name:
            weight.data.normal_(1.0 if "norm" in name else 0.0, 0.2)
        elif weight.dim() > 1:
            weight.data.normal_(std=1.3 * weight.shape[-1] ** -0.5)
    made.save_pretrained(folder)
    return folder


def published(folder: Path) -> None:
    """Write files over as published ones are: settings of text among the whole's, experts in transposed stacks."""
    settings, file = json.loads((folder / "config.json").read_text()), folder / "model.safetensors"
    weights = load_file(file)
    if "moe" not in settings["model_type"]:
        text = settings.pop("text_config")
        (folder / "config.json").write_text(json.dumps(text | settings))
        weights = {name.replace(".language_model.", "."): one for name, one in weights.items()}
    stacks = {name: one.transpose(1, 2).contiguous() for name, one in weights.items() if ".experts." in name}
    save_file(weights | stacks, file, metadata={"format": "pt"})


READERS = [(kind, False) for kind in WHOLE] + [(kind, True) for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl_moe")]


@pytest.mark.parametrize(("kind", "as_published"), READERS)
def test_text_parts_have_the_logits_of_transformers(kind: str, as_published: bool, tmp_path: Path) -> None:
    """The three positions of a token by M-RoPE are equal in text."""
    ids = tokens(60)
    saved_whole(kind, tmp_path)
    if as_published:
        published(tmp_path)
    whole = WHOLE[kind][1].from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        theirs = whole(torch.tensor([ids])).logits[0]
    assert theirs.std() > 0.3
    opened = Checkpoint.open(tmp_path)
    assert opened.also_sees
    for model in (host_model(opened), ReferenceDecoder(opened)):
        torch.testing.assert_close(model.logits(model.forward(ids, 0)), theirs, atol=2e-4, rtol=1e-4)


PIXTRAL = VISION | {"model_type": "pixtral", "head_dim": 16}
UNTIED: dict[str, tuple[Any, Any]] = {
    "mistral3": (
        Mistral3ForConditionalGeneration,
        Mistral3Config(text_config=TEXT | {"model_type": "mistral"}, vision_config=PIXTRAL, tie_word_embeddings=False),
    ),
    "gemma3": (
        Gemma3ForConditionalGeneration,
        Gemma3Config(text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4, tie_word_embeddings=False),
    ),
    **{kind: (WHOLE[kind][1], config_of(kind)) for kind in ("qwen2_5_vl", "qwen3_vl")},
}
"""Models of text and images with heads of their own, and their configurations."""


@pytest.mark.rotated(3)
@pytest.mark.parametrize("stored", ["head", "table", "nothing"])
@pytest.mark.parametrize("kind", UNTIED)
def test_embeddings_are_tied_where_transformers_ties_them(kind: str, stored: str, tmp_path: Path) -> None:
    """The whole's setting counts before that of the text part, and a head that is stored before both."""
    of, config = UNTIED[kind]
    torch.manual_seed(3)
    made = of(config)
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
    # Of one model every second pair of settings, of the next one the others.
    for outer, inner in list(product((True, False, None), repeat=2))[list(UNTIED).index(kind) % 2 :: 2]:
        for place, tied in ((settings, outer), (settings["text_config"], inner)):
            place.pop("tie_word_embeddings", None)
            if tied is not None:
                place["tie_word_embeddings"] = tied
        (tmp_path / "config.json").write_text(json.dumps(settings))
        opened = Checkpoint.open(tmp_path)
        assert not opened.config.tied or stored != "head"
        if stored == "nothing" and outer is False:
            with pytest.raises(ModelError, match=r"tensor lm_head\.weight is missing from the weights"):
                host_model(opened)
            continue
        whole, model = of.from_pretrained(tmp_path, dtype=torch.float32), host_model(opened)
        if stored == "nothing" and not whole.config.tie_word_embeddings:
            continue  # transformers draws a head at random.
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


def test_that_images_are_not_read_is_told(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(kinds.KINDS, "gemma3")
    folder = checkpoint(tmp_path / "m")
    assert load(PairSpec("p", "P", on_cpu(folder)), lambda _: None).info.notes.note == ""
    for file in saved.iterdir():
        shutil.copy(file, folder / file.name)
    note = load(PairSpec("p", "P", on_cpu(folder)), lambda _: None).info.notes.note
    assert note == "the text part of a model that reads images; images are not read"


@pytest.mark.parametrize("name", ["model.lm_head.weight", "language_model.lm_head.weight"])
def test_a_head_that_would_go_unread_is_refused(name: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    file = folder / "model.safetensors"
    weights = load_file(file)
    head = torch.randn_like(weights["model.embed_tokens.weight"])
    save_file(weights | {name: head}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"tensor lm_head\.weight is missing from the weights"):
        host_model(Checkpoint.open(folder))
