"""A device's caches are copied out and back bit for bit: whole ones, rings, recurrent states, int8 entries."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.device.cut import load_model
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.kernels import gpu_shapes
from specchat.engine.memory.need import Model
from specchat.engine.model.passes import NOTHING
from specchat.engine.prefixes import model_shelf
from specchat.engine.prefixes.on_disk import NOBODY
from specchat.engine.prefixes.shelf import Shelf
from specchat.engine.protocol.pair_info import ReadTexts
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE, SHAPE
from tests.device.test_recurrent import FULL, LINEAR, changes
from tests.device.test_rings import opened
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILY, VOCAB, checkpoint

CONTEXT = 256


@pytest.fixture(params=["whole", "int8", "ring", "recurrent", "cut rings", "cut states"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[CachedModel[DeviceModel]]]:
    """Two of one model; of a cut one each half has rings, or states."""
    kind, cut = request.param.removeprefix("cut "), request.param.startswith("cut")
    if kind in ("recurrent", "states"):
        found = Checkpoint.open(checkpoint(tmp_path / "m", seed=5, **changes(LINEAR, LINEAR if cut else FULL)))
    else:
        folder = checkpoint(tmp_path / "m", seed=3, **SHAPE | FAMILY["qwen3"] | {"head_dim": 16})
        found = opened(folder, 8 if kind in ("ring", "rings") else 0)
    if request.param == "int8":
        found = replace(found, config=found.config.with_cache("int8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_shapes, "BACK", 0)
        patch.setattr(model_shelf, "LEAST_WITH_TAIL", model_shelf.LEAST)
        yield [CachedModel(model(found, int(cut))) for _ in range(2)]


def model(found: Checkpoint, first: int) -> DeviceModel:
    """The model, its `first` layers cut from the rest."""
    planned, gpus = Model(found.config, "cuda", first=first), {"cuda": DEVICE, "second-gpu": DEVICE}
    made = load_model(found, planned, CONTEXT, gpus, torch.float32)
    if not first:
        made.record_states([1])
    return DeviceModel(made, "target", VOCAB, Graphs(DEVICE, []), DEVICE)


def test_texts_in_turn_are_as_if_each_was_read_alone(pair: list[CachedModel[DeviceModel]]) -> None:
    turned, alone = pair
    held = Shelf(ReadTexts(1 << 30))
    held.add("target", turned)
    held.hold(NOBODY)
    begun = tokens(40)
    texts = [[*begun, *tokens(30, seed=1)], [*begun, *tokens(25, seed=2)], tokens(50, seed=3)]
    reused = 0
    for turn, which in enumerate([0, 1, 2, 0, 2, 1]):
        texts[which] += tokens(5, seed=turn + 10)
        length = len(texts[which]) - 1
        reused += turned.begin(texts[which])
        alone.keep(0)
        alone.begin(texts[which])
        assert turned.tokens == alone.tokens == texts[which][:-1]
        logits = [one.model.logits_after(tokens(3), length, NOTHING, 3).clone() for one in pair]
        assert torch.equal(*logits), (turn, which)
        assert turned.model.decoder.states is None or torch.equal(*(one.model.states(1, 0, length) for one in pair))
    assert reused > 150
