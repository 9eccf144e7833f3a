"""Tiny pairs on the device: a GPU where there is one, interpreted kernels in main memory where there is none."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load
from specchat.engine.drafters import draft_model
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import VOCAB, checkpoint, perturbed
from tests.kernels.interpreter import complete

complete()

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
CONTEXT = 128
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": False,
}


def decoder(
    folder: Path, dtype: torch.dtype = torch.float32, quant: Quant | None = None, head: Quant | None = None
) -> DeviceDecoder:
    opened = Checkpoint.open(folder)
    return DeviceDecoder(opened.config, load(opened, quant, DEVICE, dtype, head), CONTEXT, DEVICE, dtype)


@dataclass(frozen=True)
class Folders:
    target: Path
    draft: Path


@pytest.fixture(autouse=True)
def _never_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are as long as they may be: random models are sure of nothing."""
    monkeypatch.setattr(LengthPolicy, "ends", lambda *_: False)
    monkeypatch.setattr(draft_model, "LEAST", 0.0)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """A random target and a draft that often agrees."""
    root = tmp_path_factory.mktemp("device")
    target = checkpoint(root / "target", **SHAPE)
    return Folders(target, perturbed(root / "draft", target, 0.05))


@pytest.fixture(scope="session")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """As `folders`, of one layer: enough to write text with, and half the time of an interpreted step."""
    root = tmp_path_factory.mktemp("shallow")
    target = checkpoint(root / "target", **SHAPE | {"num_hidden_layers": 1})
    return Folders(target, perturbed(root / "draft", target, 0.05))


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A target with enough layers to skip some, and no draft."""
    folder = checkpoint(tmp_path_factory.mktemp("deep") / "target", **SHAPE | {"num_hidden_layers": 4})
    return device_runner(decoder(folder), None, VOCAB, DEVICE)


@pytest.fixture(scope="session")
def twins(shallow: Folders) -> Runner:
    """A target that drafts for itself: whatever it drafts must be accepted."""
    return device_runner(decoder(shallow.target), decoder(shallow.target), VOCAB, DEVICE)


@pytest.fixture(scope="session")
def runner(shallow: Folders) -> Runner:
    return device_runner(decoder(shallow.target), decoder(shallow.draft), VOCAB, DEVICE)
