"""The checks in this process: interpreted, on the tiny pair of `tests.device`."""

from pathlib import Path

import pytest
import torch

from tests.device.conftest import SHAPE
from tests.engine.tiny import checkpoint, perturbed
from tests.kernels.interpreter import complete

complete()

HOST = torch.device("cpu")


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models as the embedded pair's is, of one layer each."""
    root = tmp_path_factory.mktemp("demo")
    target = checkpoint(root / "target", **SHAPE | {"num_hidden_layers": 1})
    perturbed(root / "draft", target, 0.05)
    return root
