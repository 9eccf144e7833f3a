"""Logits are those of transformers' whole model, and every strategy writes what plain writes."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.loading import load
from specchat.engine.pictures.ids import FIRST
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.conftest import HEADS, heads
from tests.engine.test_lossless import finished
from tests.engine.tiny import on_cpu, perturbed
from tests.pictures.whole import KINDS, MARK, picture, saved

ASKED = (Message("user", "abcabcabcabc", pictures=(picture(), picture(20, 70, 1))),)


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    root, turn = tmp_path_factory.mktemp(request.param), list(KINDS).index(request.param)
    target = saved(request.param, root / "target")
    some = {head: write for at, (head, write) in enumerate(HEADS.items()) if at % 3 == turn % 3}
    draft = perturbed(root / "draft", target, 0.05)
    return PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft), heads=heads(root, some))


@pytest.fixture(scope="module")
def session(pair: PairSpec) -> Session:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "_measure", lambda _: None)
        return load(pair, lambda _: None)


@cache
def whole(folder: str) -> tuple[Any, Any]:
    """Transformers' model and processor of pictures."""
    kind = Checkpoint.open(Path(folder)).settings["model_type"]
    from specchat.engine.pictures.tower import Tower

    return KINDS[kind][1].from_pretrained(folder, dtype=torch.float32), Tower(Checkpoint.open(Path(folder)))


def test_logits_are_those_of_transformers(pair: PairSpec, session: Session) -> None:
    built = session._prompts.prompt(Generate(1, ASKED))
    session.album.look(built.pictures)
    marked = torch.tensor([session.album.shown(built.tokens)])
    assert sum(token >= FIRST for token in built.tokens) == int((marked == MARK).sum()) > 8
    model, tower = whole(pair.target.path)
    inputs = [tower.processed(one.data).inputs for one in built.pictures]
    more: dict[str, Any] = {}
    if "image_grid_thw" in inputs[0]:
        more = {"image_grid_thw": torch.cat([one["image_grid_thw"] for one in inputs])}
        more |= {"pixel_values": torch.cat([one["pixel_values"] for one in inputs])}
        more |= {"mm_token_type_ids": (marked == MARK).int()}
    else:
        sizes = [one["image_sizes"][0] for one in inputs]
        high, wide = (max(int(size[axis]) for size in sizes) for axis in (0, 1))
        padded = torch.zeros(len(inputs), 3, high, wide)
        for into, one, size in zip(padded, inputs, sizes, strict=True):
            into[:, : size[0], : size[1]] = one["pixel_values"][0]
        more = {"pixel_values": padded, "image_sizes": torch.stack(sizes)}
    with torch.no_grad():
        theirs = model(marked, **more).logits[0]
    assert theirs.std() > 0.3
    reference = ReferenceDecoder(Checkpoint.open(Path(pair.target.path)))
    reference.pictures = session.album.put
    for decoder in (session.target.model, reference):
        session.album._model = decoder
        session.album._turned = 0
        session.album.hold(built.tokens)
        made = decoder.logits(decoder.forward(built.tokens[:128], 0))
        torch.testing.assert_close(made, theirs[:128], atol=2e-4, rtol=1e-4)
        made = decoder.logits(decoder.forward(built.tokens[128:], 128)) if len(built.tokens) > 128 else made[:0]
        torch.testing.assert_close(made, theirs[128:], atol=2e-4, rtol=1e-4)
    session.album._model = session.target.model


def written(
    session: Session, asked: tuple[Message, ...], sampling: Sampling, strategy: str, cold: bool = True
) -> Finished:
    request = Generate(1, asked, sampling, Limits(16), Speculation.of(strategy), cold=cold)
    return finished(list(session.generate(request)))


def test_every_strategy_writes_what_plain_writes(session: Session) -> None:
    samplings = (Sampling(repetition_penalty=1.2), Sampling(temperature=1.0, seed=3))
    plain = [written(session, ASKED, sampling, "plain") for sampling in samplings]
    for at, status in enumerate(session.info.strategies):
        if status.available:
            found = written(session, ASKED, samplings[at % 2], status.name)
            assert found.token_ids == plain[at % 2].token_ids, status.name
    other = written(session, (Message("user", "abcabcabcabc", pictures=(picture(seed=5),)),), samplings[0], "plain")
    assert other.token_ids != plain[0].token_ids
