"""Shared MLPs that are as wide as an expert: on a GPU one more of the experts, which every row has."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder, RowOptions
from specchat.engine.device.rehearsal import blank
from specchat.engine.device.weights import held_bytes, load
from specchat.engine.formats.layout import FourBit
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.gpu_need import verifying
from specchat.engine.memory.need import Model, main_expert_bytes, need
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.strategies import STRATEGIES
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, ON_GPU, decoder
from tests.device.test_decoder import SLACK, assert_nodes_are_the_ends_of_their_paths, ids, run
from tests.device.test_decoding import write
from tests.device.test_families import changes
from tests.engine.test_decoder import reference
from tests.engine.tiny import VOCAB, checkpoint, perturbed
from tests.gpu_net.sanitiser import sanitised

ALIKE: dict[str, dict[str, Any]] = {
    "qwen3_next": {"shared_expert_intermediate_size": 48},
    "glm4_moe": {"n_shared_experts": 1},
    "qwen2_moe": {"shared_expert_intermediate_size": 48, "num_hidden_layers": 1},
}
"""Shared MLPs of the experts' width, with a gate and without, as in Qwen3.6 and GLM-4.5."""


def of(family: str) -> dict[str, Any]:
    return changes(family) | ALIKE[family]


@pytest.fixture(scope="module", params=ALIKE)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp(request.param) / "m", seed=3, **of(request.param))


def test_logits_are_transformers_in_fewer_launches(folder: Path) -> None:
    model, tokens = decoder(folder), ids(7)
    mixtures = [layer for layer in model.config.recipe.layers if layer.feed in model.config.recipe.mixtures]
    assert mixtures
    assert all(one.each.down in model.weights.joined for one in model.config.recipe.mixtures)
    with sanitised() as found:
        mine = run(model, tokens, 0)
    torch.testing.assert_close(mine, reference(folder, tokens), atol=SLACK, rtol=SLACK)
    if not ON_GPU:
        # Of a mixture the router, gates and values, and down; where all is dense each product is one launch.
        of_layers = sum(len(one.mixer.products) + hasattr(one.mixer, "gates") for one in model.config.recipe.layers)
        of_feeds = sum(3 if one in mixtures else 2 for one in model.config.recipe.layers)
        assert found.launches["_multiply"] == of_layers + of_feeds + 1
        assert not found.faults


@pytest.mark.rotated(2, 1)
def test_rows_and_nodes_are_alone(folder: Path) -> None:
    model, tokens = decoder(folder), ids(8)
    alone = torch.cat([run(model, [t], i) for i, t in enumerate(tokens)])
    for start, rows in ((0, 5), (2, 6)):
        assert torch.equal(run(model, tokens[start : start + rows], start), alone[start : start + rows])
    assert_nodes_are_the_ends_of_their_paths(model, 59)


def test_padding_has_no_shared_expert(folder: Path) -> None:
    model, tokens = decoder(folder), ids(8)
    alone = torch.cat([run(model, [token], place) for place, token in enumerate(tokens[:3])])
    fed, last = torch.tensor(tokens, device=DEVICE).int(), torch.tensor([2], dtype=torch.int32, device=DEVICE)
    model.forward(fed, torch.zeros(1, dtype=torch.int32, device=DEVICE), 8, options=RowOptions(last))
    assert torch.equal(model.logits(0, 8)[:3].cpu(), alone)
    (pairs,) = model.buffers.pairs.values()
    assert int(pairs.ends[int(pairs.used) - 1]) == 3 * pairs.top
    assert int(pairs.experts[int(pairs.used) - 1]) == pairs.count - 1


@pytest.mark.rotated(2)
def test_drafts_write_what_plain_writes(folder: Path, tmp_path: Path) -> None:
    runner = device_runner(decoder(folder), decoder(perturbed(tmp_path / "d", folder, 0.05)), VOCAB, DEVICE)
    sampling = Sampling(seed=7, temperature=0.9)
    assert write(runner, "draft-tree", 3, sampling, tokens=5) == write(runner, "plain", 0, sampling, tokens=5)


@pytest.mark.skipif(ON_GPU, reason="models in float32 are the interpreter's")
@pytest.mark.parametrize("quant", ["nf4", "int8"])
@pytest.mark.parametrize(("hidden", "nested"), [(256, True), (64, False)])
def test_quantised_ones_are_the_references_and_planned(quant: Quant, hidden: int, nested: bool, tmp_path: Path) -> None:
    wide = {"hidden_size": hidden, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
    folder, tokens = checkpoint(tmp_path / "m", seed=3, **of("qwen2_moe") | wide), ids(6)
    theirs, model = ReferenceDecoder(Checkpoint.open(folder), quant=quant), decoder(folder, quant=quant)
    expected = theirs.logits(theirs.forward(tokens, 0))
    torch.testing.assert_close(run(model, tokens, 0), expected, atol=2 * SLACK, rtol=SLACK)
    small = decoder(folder, torch.float16, quant).weights
    four = [one.weight for one in small.products.values() if isinstance(one.weight, FourBit)]
    assert all((one.nested is not None) == nested for one in four[-2:])
    tables = sum(16 + 256 * (weight.nested is not None) for weight in four)
    assert need(Model(model.config, "cuda", quant), CONTEXT).weights == held_bytes(small) - 4 * tables


@pytest.mark.parametrize("family", ALIKE)
def test_all_that_is_held_is_planned(family: str, tmp_path: Path) -> None:
    """To the byte, also where the first layer's experts are in main memory: there the shared MLP is by itself."""
    needed = max(one.layers for one in STRATEGIES.values())
    kinds = {"layer_types": ["full_attention"] * (needed + 3)} if family == "qwen3_next" else {}
    deep = of(family) | kinds | {"num_hidden_layers": needed + 3, "mlp_only_layers": []}
    opened = Checkpoint.open(checkpoint(tmp_path / "m", seed=3, **deep))
    for in_main in (0, 1):
        weights = load(opened, None, DEVICE, torch.float16, experts_in_main=in_main)
        model = DeviceDecoder(opened.config, weights, CONTEXT, DEVICE, torch.float16)
        first = opened.config.recipe.mixtures[0]
        assert (first.each.down in weights.joined) == (not in_main)
        planned = plan(Model(opened.config, "cuda", experts_in_main=in_main), None, CONTEXT, processors(DEVICE))
        moved = main_expert_bytes(Model(opened.config, "cuda", experts_in_main=in_main))
        taken = model.memory() + GPU_RUNTIME + verifying(opened.config)
        assert planned.need("cuda").total == taken - (0 if ON_GPU else moved)
        if not ON_GPU:  # it lies in main memory
            run(blank(model), ids(3), 0)


def test_experts_in_main_memory_leave_the_shared_one_on_the_gpu(folder: Path) -> None:
    opened, tokens = Checkpoint.open(folder), ids(7)
    weights = load(opened, None, DEVICE, torch.float32, experts_in_main=1)
    assert opened.config.recipe.mixtures[0].each.down not in weights.joined
    mine = run(DeviceDecoder(opened.config, weights, CONTEXT, DEVICE, torch.float32), tokens, 0)
    torch.testing.assert_close(mine, run(decoder(folder), tokens, 0), atol=SLACK, rtol=SLACK)
