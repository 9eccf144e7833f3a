"""Layers with a window hold a ring of KV entries on the device: long texts have the bits of whole caches."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.weights import load
from specchat.engine.kernels import gpu_shapes
from specchat.engine.kernels.gpu_shapes import CACHE_BLOCK, PASS_ROWS
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.gpu_need import verifying
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.protocol.options import Sampling
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE, SHAPE
from tests.device.test_decoder import assert_nodes_end_their_paths_after, ids, run
from tests.engine.tiny import FAMILY, VOCAB, checkpoint, perturbed
from tests.gpu_net.poison import poisoned

WINDOW, CONTEXT, HELD = 8, 256, 192
"""Entries of a ring where texts are not rolled back, and a text that goes round it."""
SAMPLING = Sampling(seed=7, temperature=0.9)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_shapes, "BACK", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("rings") / "m", seed=3, **SHAPE | FAMILY["qwen3"] | {"head_dim": 16})


def opened(folder: Path, window: int = WINDOW) -> Checkpoint:
    """The checkpoint with a window in its first layer."""
    found = Checkpoint.open(folder)
    first, *others = found.config.recipe.layers
    first = replace(first, mixer=replace(first.attention, window=window))
    return replace(found, config=replace(found.config, recipe=replace(found.config.recipe, layers=(first, *others))))


def decoder(found: Checkpoint, back: int = 0, dtype: torch.dtype = torch.float32) -> DeviceDecoder:
    """With `back` many positions to roll back by, all are held."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_shapes, "BACK", back)
        return DeviceDecoder(found.config, load(found, None, DEVICE, dtype), CONTEXT, DEVICE, dtype)


def filled(model: DeviceDecoder, length: int) -> None:
    """A text of `length` tokens, in passes of prefill, whose last one has rows beyond the text."""
    tokens = torch.tensor(ids(CONTEXT + PASS_ROWS), dtype=torch.int32, device=DEVICE)
    for start in range(0, length, PASS_ROWS):
        model.forward(tokens[start:], torch.tensor([start], dtype=torch.int32, device=DEVICE), PASS_ROWS)


@pytest.mark.slow
def test_long_texts_have_the_logits_of_whole_caches(folder: Path) -> None:
    found = opened(folder)
    own, whole = decoder(found), decoder(found, back=CONTEXT)
    assert [keys.shape[1] for keys, _ in own.entries] == [HELD, CONTEXT + CACHE_BLOCK]
    assert [keys.shape[1] for keys, _ in whole.entries] == [CONTEXT + CACHE_BLOCK] * 2
    for length in (HELD - 3, 250):
        for model in (own, whole):
            filled(model, length)
        tokens = ids(5, seed=length)
        assert torch.equal(run(own, tokens, length), run(whole, tokens, length))
    wrong = decoder(opened(folder, WINDOW + 1))
    filled(wrong, 250)
    assert not torch.equal(run(wrong, tokens, 250), run(own, tokens, 250))


def test_nodes_of_trees_are_the_ends_of_their_paths_across_the_edge(folder: Path) -> None:
    model = decoder(opened(folder))
    for start in (HELD - 4, 250):
        filled(model, start)
        assert_nodes_end_their_paths_after(model, start)


def test_heads_read_entries_across_the_edge(folder: Path) -> None:
    own, whole = decoder(opened(folder)), decoder(opened(folder), back=CONTEXT)
    found = []
    for model in (own, whole):
        filled(model, HELD + 20)
        reading = DeviceModel(model, "target", VOCAB, Graphs(DEVICE, []), DEVICE)
        found.append(reading.kv_entries(0, HELD - 5, HELD + 5))
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs)
        assert len(mine[0].unique(dim=0)) == 10


def pair(folder: Path, root: Path, back: int) -> Runner:
    draft = perturbed(root / f"draft-{back}", folder, 0.05)
    return device_runner(decoder(opened(folder), back), decoder(opened(draft), back), VOCAB, DEVICE)


def reply(runner: Runner, prompt: list[int], strategy: str, steps: int) -> list[int]:
    """The tokens of some steps after a prompt, of which the cache reuses what it can."""
    runner.target.begin(prompt)
    drafter = runner.drafters[strategy]
    drafter.forget()
    drafter.begin(prompt)
    going = runner.reply(SAMPLING, list(prompt), ())
    for _ in range(steps):
        going.step(drafter, 3 if strategy != "plain" else 0, "coupled")
    going.close()
    return list(going.committed[len(prompt) :])


def test_replies_write_what_whole_caches_write(folder: Path, tmp_path: Path) -> None:
    """Across the edge, by chains and trees, some of which are rejected; poison is in all that no row may see."""
    own, whole, prompt = pair(folder, tmp_path, 0), pair(folder, tmp_path, CONTEXT), ids(HELD - 4)
    for strategy in ("draft", "draft-tree"):
        expected = reply(whole, prompt, strategy, 2)
        with poisoned():
            assert reply(own, prompt, strategy, 2) == expected, strategy


def test_what_is_gone_is_read_again(folder: Path) -> None:
    """A text that is rolled back further than its ring allows."""
    model = device_runner(decoder(opened(folder)), None, VOCAB, DEVICE).target.model
    assert isinstance(model, DeviceModel)
    assert model.reusable(250, 250) == 250
    # 192 entries, of which two passes and a window are needed.
    spare = HELD - 2 * PASS_ROWS - WINDOW + 1
    assert model.reusable(250 - spare, 250) == 250 - spare
    assert model.reusable(250 - spare, 240) == 250 - spare, "what was held before counts"
    assert model.reusable(250 - spare - 1, 240) == 0
    assert model.reusable(100, 110) == 100, "what is read again is there"
    assert model.reusable(2, 5) == 0
    assert model.reusable(2, 5) == 2


def test_a_model_takes_what_was_planned(folder: Path) -> None:
    found = opened(folder)
    model = decoder(found, dtype=torch.float16)
    planned = plan(Model(found.config, "cuda"), None, CONTEXT, processors(DEVICE)).need("cuda")
    assert planned.total == model.memory() + GPU_RUNTIME + verifying(found.config)
