"""An int8 cache on the device: rows and trees have the bits of chains, strategies write plain's text, plans fit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.weights import load
from specchat.engine.kernels import gpu_shapes
from specchat.engine.memory.need import Model, need
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE, SHAPE
from tests.device.test_decoder import assert_nodes_end_their_paths_after, ids, run
from tests.device.test_rings import CONTEXT, HELD, WINDOW, filled, reply
from tests.engine.tiny import FAMILIES, FAMILY, VOCAB, checkpoint, perturbed


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_shapes, "BACK", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("int8") / "m", seed=3, **SHAPE | FAMILY["qwen3"] | {"head_dim": 64})


def opened(folder: Path, window: int = 0) -> Checkpoint:
    """The checkpoint with an int8 cache, and a window in its first layer."""
    found = Checkpoint.open(folder)
    config = found.config.with_cache("int8")
    first, *others = config.recipe.layers
    if window:
        first = replace(first, mixer=replace(first.attention, window=window))
    return replace(found, config=replace(config, recipe=replace(config.recipe, layers=(first, *others))))


def decoder(found: Checkpoint, context: int = CONTEXT) -> DeviceDecoder:
    return DeviceDecoder(found.config, load(found, None, DEVICE, torch.float32), context, DEVICE, torch.float32)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("family", ["qwen3", "gemma4_e", "lfm2", "qwen3_5"])
def test_logits_are_nearly_the_reference_s(family: str, tmp_path: Path) -> None:
    """Of shared entries, beside convolutions and recurrent states too: a value may be rounded to its neighbour."""
    found = opened(checkpoint(tmp_path / "m", seed=3, **FAMILIES[family]))
    tokens = ids(9)
    mine, theirs = run(decoder(found), tokens, 0), ReferenceDecoder(found, CONTEXT).logits_after(tokens, 0)
    torch.testing.assert_close(mine, theirs, atol=2e-2, rtol=2e-2)


def test_a_row_does_not_depend_on_its_company(folder: Path) -> None:
    model = decoder(opened(folder, WINDOW))
    tokens = ids(20)
    alone = torch.cat([run(model, [t], i) for i, t in enumerate(tokens)])
    for start, rows in ((0, 5), (3, 7), (4, 16)):
        assert torch.equal(run(model, tokens[start : start + rows], start), alone[start : start + rows])


def test_nodes_of_trees_are_the_ends_of_their_paths(folder: Path) -> None:
    model = decoder(opened(folder, WINDOW))
    for start in (HELD - 4, 250):
        filled(model, start)
        assert_nodes_end_their_paths_after(model, start)


def test_replies_write_what_plain_writes(folder: Path, tmp_path: Path) -> None:
    """Across the edge of a ring; of trees scales move with values, or the second step would read others."""
    draft = perturbed(tmp_path / "draft", folder, 0.05)
    runner = device_runner(decoder(opened(folder, WINDOW)), decoder(opened(draft, WINDOW)), VOCAB, DEVICE)
    prompt = ids(HELD - 4)
    expected = reply(runner, prompt, "plain", 6)
    for strategy in ("draft", "draft-tree"):
        written = reply(runner, prompt, strategy, 2)
        count = min(len(written), len(expected))
        assert written[:count] == expected[:count], strategy


def test_heads_read_what_the_entries_say(folder: Path) -> None:
    model = decoder(opened(folder))
    filled(model, 20)
    reading = DeviceModel(model, "target", VOCAB, Graphs(DEVICE, []), DEVICE)
    found = reading.kv_entries(1, 3, 9)
    for whole, part in zip(reading.whole_entries(1), found, strict=True):
        assert torch.equal(whole[:, 3:9], part)
        assert len(part[0].unique(dim=0)) == 6
    scales = model.caches.scales[1].of_keys[:, 3:9]
    assert torch.equal(found[0].unflatten(-1, (-1, 32)).abs().amax(-1), 127 * scales)


def test_what_it_holds_is_planned(folder: Path) -> None:
    found = opened(folder)
    model = decoder(found)
    tables = sum(table.nbytes for of in model.caches.turns.values() for table in of[:2])
    held = model.caches.memory() - tables
    # In tests the values that are no int8 are float32, but there are none beside.
    assert need(Model(found.config, "cuda"), CONTEXT).cache == held
    whole = need(Model(Checkpoint.open(folder).config, "cuda"), CONTEXT).cache
    assert held / whole == (64 + 2 * 4) / (2 * 64)
