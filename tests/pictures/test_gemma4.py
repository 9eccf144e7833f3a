"""Gemma 4's E models: layers have inputs by token, which pictures do not have, and pictures see one way."""

from pathlib import Path

import torch
from transformers import Gemma4ForConditionalGeneration

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
