"""Gemma 4's E models, whose layers have inputs by token, and room for pictures of all sizes."""

from pathlib import Path

import pytest
import torch
from transformers import Gemma4ForConditionalGeneration

from specchat.engine.kernels import gpu_shapes
from specchat.engine.memory import host_need
from specchat.engine.pictures.files import most_tokens
from specchat.engine.pictures.tower import Tower
from specchat.engine.protocol.options import Limits, Sampling
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_lossless import finished
from tests.engine.tiny import FAMILIES, on_cpu
from tests.pictures.conftest import unmeasured
from tests.pictures.test_pictures import ASKED, TWO, inputs_of
from tests.pictures.whole import saved


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("gemma4", tmp_path_factory.mktemp("sizes") / "m")


@pytest.mark.parametrize(
    ("file", "text", "tokens"),
    [
        ("preprocessor_config.json", '{"max_soft_tokens": 560}', 560),
        ("processor_config.json", '{"image_processor": {"max_soft_tokens": 1120}}', 1120),
        ("preprocessor_config.json", '{"max_soft_tokens": 1e9}', 0),
        ("preprocessor_config.json", '{"max_soft_tokens": 100000}', 0),
        ("processor_config.json", '{"image_processor": "fast"}', 0),
        ("processor_config.json", "[", 0),
    ],
)
def test_caches_have_room_for_pictures_of_the_processors_size(folder: Path, file: str, text: str, tokens: int) -> None:
    for name in ("preprocessor_config.json", "processor_config.json"):
        (folder / name).write_text(text if name == file else "{}")
    checkpoint = Checkpoint.open(folder)
    assert most_tokens(checkpoint) == tokens
    recipe = checkpoint.config.recipe.with_pictures(tokens or 280)
    for mixer in recipe.attentions:
        assert mixer.mutual == (tokens or 280) * (mixer.window > 0)
        room = min(host_need.positions(mixer, 4096), gpu_shapes.held(mixer.window, 4096, 4160, mixer.mutual))
        assert room >= mixer.window + mixer.mutual


def test_logits_and_text_are_those_of_transformers(tmp_path: Path) -> None:
    changes = FAMILIES["gemma4_e"] | {"use_bidirectional_attention": None, "pad_token_id": 5}
    session = unmeasured(PairSpec("p", "Tiny", on_cpu(saved("gemma4", tmp_path, **changes))))
    marked = session.count(Count(1, ASKED, tokens=True)).token_ids
    request = Generate(1, ASKED, Sampling(), Limits(16), cold=True)
    found = finished(list(session.generate(request))).token_ids
    checkpoint = Checkpoint.open(tmp_path)
    whole = Gemma4ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    tower = Tower(checkpoint, session.tokenizer.vocabulary)
    both = torch.tensor([[*marked, *found]])
    with torch.no_grad():
        theirs = whole(both, **inputs_of([tower.processed(one.data).inputs for one in TWO], both)).logits[0]
    assert tuple(theirs[len(marked) - 1 : -1].argmax(-1).tolist()) == found
    reference, tokens = ReferenceDecoder(checkpoint), session._prompts.prompt(request).tokens
    list(session.album.look(TWO, rows := list[object]()))
    reference.pictures = session.target.model.pictures
    for model in (session.target.model, reference):
        ours = model.logits(model.forward(tokens, 0))
        torch.testing.assert_close(ours, theirs[: len(marked)], atol=5e-4, rtol=1e-4)
    del rows
