"""Files as transformers saves them, and text parts of checkpoints that read images: the logits within 1e-5."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine import families
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.causal import AutoModelForCausalLM
from tests.engine.test_decoder import tokens
from tests.engine.tiny import MORE, checkpoint

WITHIN = 1e-5
"""Of the largest logit."""
OF_STATES = 3e-4
"""The same of a model with recurrent states, which transformers computes in chunks."""
SEEING = [name for name, c in MORE.items() if families.known()[c["model_type"]].also_seeing]


def logits(model: CachedDecoder, ids: list[int]) -> torch.Tensor:
    return torch.cat([model.logits(model.forward(ids[i : i + 17], i)).clone() for i in range(0, len(ids), 17)])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("family", MORE)
def test_what_transformers_saves_is_read_with_its_logits(family: str, tmp_path: Path) -> None:
    folder, ids = checkpoint(tmp_path / "m", seed=6, **MORE[family]), tokens(36)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    saved = Checkpoint.open(tmp_path / "saved")
    within = OF_STATES if saved.config.recipe.recurrent else WITHIN
    for decoder in (ReferenceDecoder(saved), host_model(saved)):
        assert (logits(decoder, ids) - theirs).abs().max() < within * theirs.abs().max(), type(decoder).__name__


@pytest.mark.parametrize("family", SEEING)
def test_a_text_part_has_the_bits_of_the_text_model(family: str, tmp_path: Path) -> None:
    folder, ids = checkpoint(tmp_path / "m", seed=6, **MORE[family]), tokens(40)
    expected = logits(host_model(Checkpoint.open(folder)), ids)
    file, settings = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    outer = families.known()[settings["model_type"]].also_seeing[0]
    (folder / "config.json").write_text(json.dumps({"model_type": outer, "text_config": settings}))
    inner = {name.replace("model.", "model.language_model.", 1): one for name, one in load_file(file).items()}
    save_file(inner | {"model.vision_tower.patch.weight": torch.zeros(3, 3)}, file)
    assert torch.equal(logits(host_model(Checkpoint.open(folder)), ids), expected)
