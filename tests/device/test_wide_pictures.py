"""Pictures of more rows than a pass has, and rows that are added after first layers, on a device."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from specchat.engine.device.model import DeviceModel
from specchat.engine.device.prompts import PromptPasses
from specchat.engine.protocol.requests import Generate
from specchat.engine.runners.device import device_runner
from specchat.engine.session import Session
from tests.device.conftest import DEVICE, ON_GPU, decoder
from tests.device.test_pictures import ASKED, ONE, session_of
from tests.engine.tiny import VOCAB
from tests.gpu_net.fake_torch import fake_torch
from tests.gpu_net.runtime import Graph
from tests.gpu_net.test_fake_cuda import FIRST, tiny_decoder
from tests.pictures.whole import saved


@pytest.fixture(scope="module", params=["gemma3", "gemma4"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(request.param, tmp_path_factory.mktemp(request.param) / "target", **ONE[request.param])


@pytest.fixture(scope="module")
def session(folder: Path) -> Session:
    return session_of(folder, device_runner(decoder(folder), None, VOCAB, DEVICE))


@pytest.fixture
def tokens(session: Session) -> Iterator[list[int]]:
    """A prompt with two pictures, which are there as long as a test."""
    list(session.album.look(ASKED[0].pictures, seen := list[object]()))
    yield session._prompts.prompt(Generate(1, ASKED)).tokens
    del seen


def read(session: Session, tokens: list[int]) -> list[Tensor]:
    """The logits after a prompt, and hidden states on the way."""
    session.forget()
    logits = session.target.next_logits(tokens)
    model = session.target.model
    assert isinstance(model, DeviceModel)
    return [logits, *(model.states(layer, 0, len(tokens) - 1) for layer in range(3))]


def test_rows_have_the_bits_of_a_single_pass(
    session: Session, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = session.target.model
    assert isinstance(model, DeviceModel)
    model.record_states(range(3))
    expected = read(session, tokens)
    monkeypatch.setattr(PromptPasses, "block", 5)
    assert all(map(torch.equal, read(session, tokens), expected))


@pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")
@pytest.mark.rotated(2)
def test_a_device_that_computes_later_reads_the_same(
    folder: Path, session: Session, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preparing launches such a pass, too."""
    monkeypatch.setattr(PromptPasses, "block", 8)
    session.forget()
    expected = session.target.next_logits(tokens)
    with fake_torch(1, computes=True) as fake:
        runner = device_runner(tiny_decoder(folder, FIRST), None, VOCAB, FIRST)
        model = runner.target.model
        assert isinstance(model, DeviceModel)
        model.prepare()
        model.pictures = session.target.model.pictures
        assert torch.equal(runner.target.next_logits(tokens), expected)
        assert not fake.runtime.problems


@pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")
def test_rows_after_first_layers_are_added_in_passes_with_pictures_alone(tmp_path: Path) -> None:
    folder = saved("qwen3_vl", tmp_path, num_hidden_layers=3)
    on_host = session_of(folder, device_runner(decoder(folder), None, VOCAB, DEVICE))
    list(on_host.album.look(ASKED[0].pictures, seen := list[object]()))
    tokens = on_host._prompts.prompt(Generate(1, ASKED)).tokens
    expected = on_host.target.next_logits(tokens)
    with fake_torch(1, computes=True) as fake:
        runner = device_runner(tiny_decoder(folder, FIRST), None, VOCAB, FIRST)
        model = runner.target.model
        assert isinstance(model, DeviceModel)
        model.prepare()
        captured = model._graphs._graphs
        model.pictures = on_host.target.model.pictures
        assert torch.equal(runner.target.next_logits(tokens), expected)
        assert not fake.runtime.problems
        for rows in (64, 256):
            text, pictures = (cast(Graph, captured["prefill", "target", rows, deep][0]) for deep in (0, 2))
            assert (text.operations["add_"], pictures.operations["add_"]) == (0, 2)
            assert len(pictures.launches) == len(text.launches) + 2
    del seen
