"""Recurrent layers on the device: rolled back as a KV cache is, with the same bits, by every strategy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from specchat.engine.decoding.cached import CHECKPOINT_MARGIN, CachedModel
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.rehearsal import blank
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.weights import load
from specchat.engine.formats.layout import values_of
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, STATE_BACK, STATE_SLOTS
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.gpu_need import unsupported, verifying
from specchat.engine.memory.gpu_states import checkpoints
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.memory.state_need import CHECKPOINTS
from specchat.engine.model.passes import Skip
from specchat.engine.protocol.options import Sampling
from specchat.engine.recipe import Delta
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import parse_config
from tests.device.conftest import DEVICE, SHAPE
from tests.device.test_decoder import SLACK, assert_nodes_are_the_ends_of_their_paths, ids, run
from tests.device.test_decoding import PROMPT, write
from tests.engine.tiny import FAMILIES, QWEN35, VOCAB, checkpoint, config, perturbed

CONTEXT = 320
HEADS = {
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT,
}
LINEAR, FULL = "linear_attention", "full_attention"


MAMBA = FAMILIES["granitemoehybrid"] | {
    "num_key_value_heads": 1,
    "mamba_n_heads": 4,
    "max_position_embeddings": CONTEXT,
}


def changes(*kinds: str, family: dict[str, Any] = QWEN35 | HEADS) -> dict[str, Any]:
    return SHAPE | family | {"layer_types": list(kinds), "num_hidden_layers": len(kinds)}


KINDS = LINEAR, FULL, LINEAR, LINEAR
RECIPE = parse_config(Path(), config(**changes(*KINDS))).recipe


@pytest.fixture(scope="module", params=[QWEN35 | HEADS, MAMBA], ids=["DeltaNet", "Mamba 2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("recurrent") / "m", seed=5, **changes(*KINDS, family=request.param))


@pytest.fixture(
    scope="module", params=[QWEN35 | HEADS, pytest.param(MAMBA, marks=pytest.mark.slow)], ids=["DeltaNet", "Mamba 2"]
)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `folder`, of two layers: less than half of the time."""
    return checkpoint(tmp_path_factory.mktemp("small") / "m", seed=5, **changes(LINEAR, FULL, family=request.param))


def made(folder: Path, dtype: torch.dtype = torch.float32, device: torch.device = DEVICE) -> DeviceDecoder:
    opened = Checkpoint.open(folder)
    return DeviceDecoder(opened.config, load(opened, None, device, dtype), CONTEXT, device, dtype)


def held(folder: Path) -> CachedModel[DeviceModel]:
    return CachedModel(DeviceModel(made(folder), "target", VOCAB, Graphs(DEVICE, []), DEVICE))


def read(model: DeviceModel, tokens: list[int], start: int = 0) -> None:
    for at in range(0, len(tokens), PASS_ROWS):
        model.write(tokens[at : at + PASS_ROWS], start + at)


def test_logits_equal_transformers(tmp_path: Path) -> None:
    """Of recurrent layers alone, which its cache cannot hold."""
    folder, tokens = checkpoint(tmp_path / "m", seed=3, **changes(LINEAR, LINEAR)), ids(36)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(torch.tensor([tokens]), use_cache=False).logits[0]
    mine = made(folder)
    found = torch.cat([run(mine, tokens[a:b], a) for a, b in ((0, 7), (7, 20), (20, 36))])
    assert theirs.std() > 0.3
    torch.testing.assert_close(found, theirs, atol=SLACK, rtol=SLACK)


def test_logits_are_the_references(small: Path) -> None:
    """After more tokens than a log holds."""
    model, tokens = held(small).model, ids(STATE_SLOTS + 40)
    host = ReferenceDecoder(Checkpoint.open(small), CONTEXT)
    theirs = host.logits(host.forward(tokens[:128], 0))
    theirs = torch.cat([theirs, host.logits(host.forward(tokens[128:], 128))])
    read(model, tokens[:150])
    torch.testing.assert_close(run(model.decoder, tokens[150:], 150), theirs[150:], atol=SLACK, rtol=SLACK)
    torch.testing.assert_close(run(model.decoder, tokens[130:133], 130), theirs[130:133], atol=SLACK, rtol=SLACK)


@pytest.mark.rotated(2, 1)
def test_a_row_does_not_depend_on_its_company(folder: Path) -> None:
    model, tokens = made(folder), ids(20)
    alone = torch.cat([run(model, [t], i) for i, t in enumerate(tokens)])
    for start, rows in ((0, 2), (0, 16), (3, 7), (4, 16)):
        assert torch.equal(run(model, tokens[start : start + rows], start), alone[start : start + rows])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("start", [5, 59])
def test_a_node_of_a_tree_is_the_end_of_its_path(folder: Path, start: int) -> None:
    assert_nodes_are_the_ends_of_their_paths(made(folder), start)


def test_skipping_is_the_hosts_skipping(folder: Path) -> None:
    model, host, flags, tokens = (
        made(folder),
        ReferenceDecoder(Checkpoint.open(folder)),
        SkipFlags(RECIPE, DEVICE),
        ids(6),
    )
    whole = run(model, tokens, 0)
    skip = Skip(attention=frozenset({2}), mlp=frozenset({0}))
    flags.set(skip)
    theirs = host.logits(host.forward(tokens, 0, skip))
    torch.testing.assert_close(run(model, tokens, 0, flags), theirs, atol=SLACK, rtol=SLACK)
    assert torch.equal(run(model, tokens, 0), whole)


@pytest.mark.rotated(2)
def test_drafts_without_some_layers_and_their_trials_change_no_bit(folder: Path) -> None:
    """As SWIFT drafts: token by token after the text, and of old tokens in one pass."""
    model, tokens, skip = held(folder).model, ids(110), Skip(attention=frozenset({2}), mlp=frozenset({1}))
    other, flags = held(folder).model, SkipFlags(RECIPE, DEVICE)
    flags.set(skip)
    for each in (model, other):
        read(each, tokens[:70])
    for at in range(70, 102, 8):
        for i in range(4):
            run(model.decoder, [i], at + i, flags)
        assert torch.equal(run(model.decoder, tokens[at : at + 8], at), run(other.decoder, tokens[at : at + 8], at)), at
        if at > 80:
            model.likeliest(tokens[at - 24 : at + 8], at - 24, skip)
    assert torch.equal(run(model.decoder, tokens[102:], 102), run(other.decoder, tokens[102:], 102))


def logits_after(cached: CachedModel[DeviceModel], text: list[int]) -> Tensor:
    return cached.model.next_logits(text[-1], len(text) - 1)


def test_the_next_turn_goes_on_from_a_checkpoint(small: Path) -> None:
    """A reply whose reasoning the template drops diverges within the last tokens of its prompt."""
    cached, text, at = held(small), ids(90), 0
    for turn in range(3):
        assert cached.begin(text) == at, turn
        at = len(text) - 1 - CHECKPOINT_MARGIN
        reply = ids(STATE_BACK + 40, seed=turn)
        read(cached.model, [text[-1], *reply[:-1]], len(text) - 1)
        cached.tokens = [*text, *reply[:-1]]
        text = [*text[:-3], *ids(30, seed=50 + turn)]
    cold = held(small)
    assert cached.begin(text) == at
    assert cold.begin(text) == 0
    assert torch.equal(logits_after(cached, text), logits_after(cold, text))


def test_a_text_is_rolled_back_without_a_checkpoint_as_far_as_is_promised(small: Path) -> None:
    cached, text = held(small), ids(150)
    cached.begin(text)
    other = [*text[: 149 - STATE_BACK // 2], *ids(30, seed=1)]
    assert cached.begin(other) == 149 - STATE_BACK // 2
    cold = held(small)
    cold.begin(other)
    assert torch.equal(logits_after(cached, other), logits_after(cold, other))


def test_checkpoints_are_few_and_hold_for_the_text_that_they_were_taken_of(small: Path) -> None:
    cached, text, ends = held(small), ids(300), [80, 120, 180, 240, 300]
    for end in ends:
        cached.begin(text[:end])
    marks, states = [end - 1 - CHECKPOINT_MARGIN for end in ends], cached.model.decoder.recurrent
    assert states is not None
    assert list(states._checkpoints) == marks[-CHECKPOINTS:]
    taken = (part for one in states._checkpoints.values() for part in one)
    assert sum(part.nbytes for part in taken) == checkpoints(cached.model.config.recipe)
    other = [*text[: marks[2] + 5], *ids(40, seed=1)]
    assert cached.begin(other) == marks[2]
    assert list(states._checkpoints) == [marks[2], len(other) - 1 - CHECKPOINT_MARGIN]
    assert cached.begin(ids(50, seed=2)) == 0
    assert cached.begin([*ids(50, seed=2)[:2], *text]) == 2


def test_trees_write_what_plain_writes(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the end of the log, with a draft model that has one too."""
    monkeypatch.setattr("tests.device.test_decoding.PROMPT", (PROMPT * 13)[: STATE_SLOTS - 6])
    runner = device_runner(made(small), made(perturbed(tmp_path / "draft", small, 0.05)), VOCAB, DEVICE)
    sampling = Sampling(seed=7, temperature=0.9)
    plain = write(runner, "plain", 0, sampling, tokens=8)
    assert len(set(plain)) > 4
    assert write(runner, "draft-tree", 4, sampling, tokens=8) == plain


def test_all_that_it_holds_is_planned(folder: Path) -> None:
    """To the byte; a rehearsal has a layer of each form."""
    model = made(folder, torch.float16)
    planned = plan(Model(model.config, "cuda"), None, CONTEXT, processors(DEVICE)).need("cuda")
    taken = model.memory() + GPU_RUNTIME + verifying(model.config)
    assert planned.total == taken
    in_main_memory, apart = plan(Model(model.config, "cuda"), None, CONTEXT).need("cpu"), not model.config.tied
    assert in_main_memory.weights == apart * values_of(model.weights.embed).nbytes
    assert in_main_memory.total - in_main_memory.weights == checkpoints(model.config.recipe)
    assert [type(one.mixer) for one in blank(model).config.recipe.layers] == [
        type(one.mixer) for one in model.config.recipe.layers
    ]


def test_programs_may_share_a_head_of_no_power_of_two(tmp_path: Path) -> None:
    """As Nemotron Nano's of 80 values: here three programs have 16 of 48 each."""
    shape = {"hidden_size": 32, "mamba_n_heads": 2, "mamba_expand": 3, "mamba_d_state": 128}
    folder, tokens = checkpoint(tmp_path / "m", seed=3, **changes(LINEAR, FULL, family=MAMBA) | shape), ids(12)
    model, host = made(folder), ReferenceDecoder(Checkpoint.open(folder), CONTEXT)
    assert [(of.key_dim, of.value_dim) for of in model.config.recipe.recurrent] == [(128, 48)]
    found = run(model, tokens, 0)
    torch.testing.assert_close(found, host.logits(host.forward(tokens, 0)), atol=SLACK, rtol=SLACK)
    assert torch.equal(found, torch.cat([run(model, [token], at) for at, token in enumerate(tokens)]))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"linear_value_head_dim": 24}, "recurrent heads of 16 by 24 values"),
        ({"linear_key_head_dim": 512}, "recurrent heads of 512 by 16 values"),
        ({"linear_conv_kernel_dim": 9}, "a convolution over 9 tokens"),
    ],
)
def test_shapes_that_the_kernels_lack_are_refused(changed: dict[str, int], words: str) -> None:
    found = parse_config(Path(), config(**changes(LINEAR, FULL) | changed))
    assert unsupported(found) == f"{words}: not in the GPU kernels yet"


def test_unlike_recurrent_layers_are_refused() -> None:
    found = parse_config(Path(), config(**changes(LINEAR, LINEAR)))
    first, last = found.recipe.layers
    assert isinstance(last.mixer, Delta)
    layers = first, replace(last, mixer=replace(last.mixer, value_heads=2))
    unlike = replace(found, recipe=replace(found.recipe, layers=layers))
    assert not unsupported(found)
    assert unsupported(unlike) == "recurrent layers of unlike shapes: not in the GPU kernels yet"


def test_gates_stay_dense_where_all_else_is_quantised(tmp_path: Path) -> None:
    wide = {"hidden_size": 64, "linear_num_value_heads": 4}
    folder = checkpoint(tmp_path / "m", **changes(LINEAR, FULL) | wide)
    opened = Checkpoint.open(folder)
    weights = load(opened, "nf4", DEVICE, torch.float16)
    dense = {matrix.names for matrix, one in weights.products.items() if isinstance(one.weight, Tensor)}
    assert dense == {mixer.gates.names for mixer in opened.config.recipe.recurrent}
