"""A random model with a window in some layers, heads of 256 and GELU, as Gemma 3 has them, on the device."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.device import ops as passes
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load
from specchat.engine.kernels.gpu_shapes import attention_splits
from specchat.engine.memory.gpu_buffers import attention_sets
from specchat.engine.memory.gpu_need import unsupported
from specchat.engine.recipe import Layer
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, ON_GPU, SHAPE
from tests.device.test_decoder import SLACK, ids, run
from tests.engine.tiny import FAMILY, checkpoint
from tests.gpu_net.poison import poisoned
from tests.gpu_net.sanitiser import sanitised

WINDOW = 8
BEFORE, ROWS = 21, 9
"""Tokens before those whose logits are compared; both are longer than the window."""
Change = Callable[[int, Layer], Layer]


def gemmas(index: int, layer: Layer) -> Layer:
    """The first layer has a window, the second none."""
    mixer = replace(layer.mixer, window=0 if index % 2 else WINDOW, scale=0.05)
    return replace(layer, mixer=mixer, feed=replace(layer.feed, activation="gelu_tanh"))


def opened(folder: Path, change: Change = gemmas) -> Checkpoint:
    """The checkpoint with its layers changed."""
    found = Checkpoint.open(folder)
    recipe = found.config.recipe
    changed = replace(recipe, layers=tuple(change(i, layer) for i, layer in enumerate(recipe.layers)))
    return replace(found, config=replace(found.config, recipe=changed))


def decoder(found: Checkpoint, dtype: torch.dtype = torch.float32, context: int = CONTEXT) -> DeviceDecoder:
    assert not unsupported(found.config)
    return DeviceDecoder(found.config, load(found, None, DEVICE, dtype), context, DEVICE, dtype)


def last(model: DeviceDecoder) -> Tensor:
    """Logits of ROWS tokens after BEFORE of them, in passes of as many rows."""
    tokens = ids(BEFORE + ROWS)
    model.forward(torch.tensor(tokens[:BEFORE], device=DEVICE).int(), torch.zeros(1, device=DEVICE).int(), BEFORE)
    return run(model, tokens[BEFORE:], BEFORE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = SHAPE | FAMILY["qwen3"] | {"num_key_value_heads": 1, "head_dim": 256}
    return checkpoint(tmp_path_factory.mktemp("windows") / "m", seed=3, **changes)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Tensor:
    """What the reference makes of the same tokens."""
    host = ReferenceDecoder(opened(folder))
    return host.logits(host.forward(ids(BEFORE + ROWS), 0))[BEFORE:].clone()


def test_logits_are_those_of_the_reference(folder: Path, theirs: Tensor) -> None:
    assert theirs.std() > 0.3
    torch.testing.assert_close(last(decoder(opened(folder))), theirs, atol=SLACK, rtol=SLACK)


def of_first(change: Callable[[Layer], Layer]) -> Change:
    """Gemma's layers, the first of them changed."""
    return lambda index, layer: gemmas(index, layer) if index else change(gemmas(index, layer))


WRONG: dict[str, Change] = {
    "a window of one less": of_first(lambda one: replace(one, mixer=replace(one.mixer, window=WINDOW - 1))),
    "a window of one more": of_first(lambda one: replace(one, mixer=replace(one.mixer, window=WINDOW + 1))),
    "no window": of_first(lambda one: replace(one, mixer=replace(one.mixer, window=0))),
    "windows change places": lambda index, layer: gemmas(1 - index, layer),
    "another activation": of_first(lambda one: replace(one, feed=replace(one.feed, activation="silu"))),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_detail_shows(wrong: str, folder: Path, theirs: Tensor) -> None:
    assert (last(decoder(opened(folder, WRONG[wrong]))) - theirs).abs().max() > 5 * SLACK


@pytest.mark.skipif(ON_GPU, reason="kernels run on the GPU here")
@pytest.mark.parametrize("further", [0, 1])
def test_entries_before_the_windows_are_not_read(further: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NaN in them nothing changes, but where attention reads one entry more."""
    found = opened(folder, lambda _, layer: gemmas(0, layer))
    attend = passes.attend_rows

    def other(*args: Any) -> None:
        attend(*args[:-1], args[-1]._replace(window=args[-1].window + further))

    monkeypatch.setattr(passes, "attend_rows", other)
    before = last(decoder(found))
    with sanitised() as seen, poisoned():
        after = last(decoder(found))
    assert not seen.faults
    assert torch.equal(before, after) != bool(further)


def test_a_window_as_long_as_the_context_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such models launch the kernels that models without windows launch."""
    found, windows = opened(folder), list[object]()
    monkeypatch.setattr(passes, "attend_rows", lambda *args: windows.append(args[-1].window))
    for context in (WINDOW, WINDOW + 1):
        run(decoder(found, context=context), ids(2), 0)
    assert windows == [0, 0, WINDOW, 0]


def test_windows_alone_take_no_sums_of_a_whole_cache(folder: Path) -> None:
    long, mixed, alone = 1 << 15, opened(folder), opened(folder, lambda _, layer: gemmas(0, layer))
    splits = [attention_sets(of.config.recipe, long, long)[-1] for of in (mixed, alone)]
    assert splits == [attention_splits(long), attention_splits(long, WINDOW)]
    assert splits[1] == 2
    assert attention_sets(alone.config.recipe, WINDOW, long)[-1] == splits[0], "it sees all of a text as short"
