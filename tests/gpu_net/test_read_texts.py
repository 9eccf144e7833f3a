"""Copies of what a GPU's cache would lose lie in locked main memory, where the system locks it."""

from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.prefixes import model_shelf
from specchat.engine.prefixes.on_disk import NOBODY
from specchat.engine.prefixes.shelf import Shelf
from specchat.engine.protocol.pair_info import ReadTexts
from tests.device.conftest import ON_GPU, SHAPE
from tests.device.test_recurrent import made
from tests.engine.test_decoder import tokens
from tests.engine.tiny import VOCAB, checkpoint
from tests.gpu_net.fake_torch import fake_torch

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")
FIRST = torch.device("cuda", 0)


def test_a_copy_is_locked_until_it_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_shelf, "LEAST", 8)
    folder = checkpoint(tmp_path / "m", **SHAPE | {"tie_word_embeddings": True})
    texts = [tokens(12, seed=seed) for seed in range(3)]
    with fake_torch(1, computes=True) as fake:
        turned = CachedModel(DeviceModel(made(folder, device=FIRST), "target", VOCAB, Graphs(FIRST, []), FIRST))
        held = Shelf(ReadTexts(1 << 30))
        held.add("target", turned)
        held.hold(NOBODY)
        before = len(fake.locked)
        assert [turned.begin(text) for text in texts[:2]] == [0, 0]
        assert len(fake.locked) == before + 1
        fake.lockable = 0
        assert [turned.begin(text) for text in (texts[2], *texts[:2])] == [0, 11, 11]
        assert held.size > 0
        held.clear()
        assert len(fake.locked) == before
        assert not fake.runtime.problems
        assert not fake.runtime.error
