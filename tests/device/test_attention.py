"""Gates on attention and sinks on the device, in layers that no family has together."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.gpu_need import unsupported, verifying
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.recipe import Layer
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, ON_GPU, SHAPE
from tests.device.test_decoder import SLACK, assert_nodes_are_the_ends_of_their_paths, ids, run
from tests.engine.tiny import FAMILY, checkpoint
from tests.gpu_net.sanitiser import sanitised

FIRST, ROWS = 9, 7
"""Tokens before those whose logits are compared."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Gates in both layers, sinks and a window in the second; queries have a norm and keys have none."""
    folder = checkpoint(tmp_path_factory.mktemp("gates") / "m", seed=3, **SHAPE | FAMILY["qwen3"])
    opened, weights = Checkpoint.open(folder), load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(1)

    def changed(index: int, layer: Layer) -> Layer:
        mixer = layer.attention
        query, key, value = mixer.qkv.outputs
        qkv = replace(mixer.qkv, outputs=(2 * query, key, value))
        sinks = f"model.layers.{index}.self_attn.sinks" if index else ""
        weights[f"{mixer.qkv.names[0]}.weight"] = torch.randn(2 * query, qkv.inputs, generator=generator) / 4
        weights[sinks or "unused"] = torch.randn(mixer.heads, generator=generator)
        made = replace(mixer, qkv=qkv, gated=True, sinks=sinks, window=8 * index, key_norm=None)
        return replace(layer, mixer=made)

    layers = tuple(changed(index, layer) for index, layer in enumerate(opened.config.recipe.layers))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return replace(opened, config=replace(opened.config, recipe=replace(opened.config.recipe, layers=layers)))


def decoder(found: Checkpoint, dtype: torch.dtype = torch.float32) -> DeviceDecoder:
    assert not unsupported(found.config)
    return DeviceDecoder(found.config, load(found, None, DEVICE, dtype), CONTEXT, DEVICE, dtype)


def last(model: DeviceDecoder) -> torch.Tensor:
    """Logits of ROWS tokens after FIRST of them."""
    tokens = ids(FIRST + ROWS)
    run(model, tokens[:FIRST], 0)
    return run(model, tokens[FIRST:], FIRST)


def test_logits_are_those_of_the_reference(found: Checkpoint) -> None:
    host = ReferenceDecoder(found)
    theirs = host.logits(host.forward(ids(FIRST + ROWS), 0))[FIRST:]
    assert theirs.std() > 0.3
    torch.testing.assert_close(last(decoder(found)), theirs, atol=SLACK, rtol=SLACK)
    recipe = found.config.recipe
    for change in ({"sinks": ""}, {"window": 0}, {"query_norm": None}):
        other = replace(recipe.layers[1], mixer=replace(recipe.layers[1].attention, **change))
        wrong = replace(found.config, recipe=replace(recipe, layers=(recipe.layers[0], other)))
        assert (last(decoder(replace(found, config=wrong))) - theirs).abs().max() > 5 * SLACK


def test_rows_and_nodes_are_alone(found: Checkpoint) -> None:
    model, tokens = decoder(found), ids(FIRST + ROWS)
    alone = torch.cat([run(model, [t], i) for i, t in enumerate(tokens)])
    assert torch.equal(last(model), alone[FIRST:])
    for start in (5, 59):
        assert_nodes_are_the_ends_of_their_paths(model, start)


@pytest.mark.skipif(ON_GPU, reason="launches are counted where they are interpreted")
def test_gates_and_sinks_take_no_launch(found: Checkpoint) -> None:
    model = decoder(found)
    with sanitised() as seen:
        run(model, ids(3), 0)
    assert sum(seen.launches.values()) == 9 * model.config.layers + 3
    assert not seen.faults


def test_a_model_takes_what_was_planned(found: Checkpoint) -> None:
    model = decoder(found, torch.float16)
    planned = plan(Model(found.config, "cuda"), None, CONTEXT, processors(DEVICE)).need("cuda")
    taken = model.memory() + GPU_RUNTIME + verifying(found.config)
    assert planned.total == taken
