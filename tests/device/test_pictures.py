"""A device reads the rows of pictures as the processor does, at the same positions."""

from pathlib import Path
from time import perf_counter

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.device.prompts import PromptPasses
from specchat.engine.loading.pictures import opened_album
from specchat.engine.pictures.draft_album import DraftAlbum
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.protocol.requests import Generate
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.host import host_model, host_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, decoder
from tests.engine.test_lossless import finished
from tests.engine.tiny import VOCAB, on_cpu, perturbed
from tests.pictures.whole import picture, saved

ASKED = (Message("user", "abab", pictures=(picture(42, 28), picture(28, 28, 1))),)
ONE = {
    "mistral3": {"num_hidden_layers": 1},
    "qwen2_5_vl": {"num_hidden_layers": 1},
    "gemma3": {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    "gemma4": {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    "qwen3_vl": {"num_hidden_layers": 2},
    "qwen3_5": {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
}


@pytest.fixture(scope="module", params=ONE)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(request.param, tmp_path_factory.mktemp(request.param) / "target", **ONE[request.param])


@pytest.fixture(autouse=True)
def _narrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of Gemma 4 have more rows than a pass."""
    if folder.parent.name.startswith("gemma4"):
        monkeypatch.setattr(PromptPasses, "block", 8)


def session_of(folder: Path, runner: Runner, draft: Checkpoint | None = None) -> Session:
    opened, pair = Checkpoint.open(folder), PairSpec("tiny", "Tiny", on_cpu(folder))
    tokenizer = opened.tokenizer()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "_measure", lambda _: None)
        album = opened_album(pair, opened, runner, tokenizer, draft=draft)
        return Session(pair, tokenizer, runner, perf_counter(), album=album)


@pytest.fixture(scope="module")
def small(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(perturbed(tmp_path_factory.mktemp("draft"), folder, 0.05))


@pytest.fixture(scope="module")
def session(folder: Path, small: Checkpoint) -> Session:
    """A session whose draft looks at pictures, too."""
    made = session_of(folder, device_runner(decoder(folder), decoder(small.folder), VOCAB, DEVICE), small)
    look_too(made)
    return made


def look_too(session: Session) -> None:
    """Have the draft look at pictures that come."""
    drawn = session.album.draft  # type: ignore[attr-defined]
    assert isinstance(drawn, DraftAlbum)
    drawn.took = {True: (1.0, 8), False: (9.0, 8)}


@pytest.mark.rotated(2, 1)
def test_logits_are_those_of_the_processor(folder: Path, small: Checkpoint, session: Session) -> None:
    """Those of the target and of the draft."""
    models = (host_model(Checkpoint.open(folder), CONTEXT), host_model(small, CONTEXT))
    on_host = session_of(folder, host_runner(*models), small)
    look_too(on_host)
    found: list[list[torch.Tensor]] = []
    for one in (session, on_host):
        tokens = one._prompts.prompt(Generate(1, ASKED)).tokens
        assert sum(token >= FIRST for token in tokens) >= 10
        seen = list[object]()
        list(one.album.look(ASKED[0].pictures, seen, "draft"))
        one.album.hold(tokens)
        assert len(seen) == 4
        cached: tuple[CachedModel, ...] = (one.target, one.runner.draft)  # type: ignore[type-arg, assignment]
        found.append([of.next_logits(tokens)[:VOCAB] for of in cached])
        one.forget()
        del seen
    close = {"atol": 2e-4, "rtol": 1e-4} if DEVICE.type == "cpu" else {"atol": 2e-3, "rtol": 1e-3}
    for ours, theirs in zip(*found, strict=True):
        assert theirs.std() > 0.3
        torch.testing.assert_close(ours, theirs, **close)


@pytest.mark.rotated(2)
def test_strategies_write_what_plain_writes(session: Session) -> None:
    """With penalties, which count the prompt's tokens."""

    def written(strategy: str) -> tuple[int, ...]:
        sampling = Sampling(2, repetition_penalty=1.2, temperature=0.8)
        request = Generate(1, ASKED, sampling, Limits(4), Speculation.of(strategy), cold=True)
        return finished(list(session.generate(request))).token_ids

    plain = written("plain")
    assert {written(strategy) for strategy in ("draft", "lookup")} == {plain}
