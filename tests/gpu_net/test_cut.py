"""A target whose layers lie on two GPUs that are not there: every launch on its GPU, and one GPU's bits."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from specchat.config.catalog import Pair
from specchat.engine.device.cut import CutDecoder, load_model
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.rehearsal import blank
from specchat.engine.errors import EngineError
from specchat.engine.hardware import gpu
from specchat.engine.kernels.processors import processors
from specchat.engine.loading.pictures import opened_album, with_tower
from specchat.engine.memory.gpu_need import verifying
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.model.passes import NOTHING
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.recipe import Attention, Delta
from specchat.engine.runners import device as runners
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.load import load_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune import work
from specchat.tune.order import TuneData, TuneOrder, TuneReport
from tests.device.conftest import CONTEXT, ON_GPU, SHAPE
from tests.device.test_decoding import SAMPLINGS, write
from tests.device.test_families import changes
from tests.device.test_recurrent import FULL, LINEAR
from tests.device.test_recurrent import changes as recurrent
from tests.engine.test_decoder import tokens
from tests.engine.tiny import VOCAB, checkpoint, perturbed
from tests.gpu_net.fake_torch import fake_torch
from tests.gpu_net.test_fake_cuda import FIRST, HOST, SECOND
from tests.pictures.whole import picture, saved

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for GPUs where there are none")
KINDS = {
    "dense": SHAPE,
    "tied": SHAPE | {"tie_word_embeddings": True},
    "mixture": changes("qwen3_moe"),
    "recurrent": recurrent(LINEAR, FULL),
}
TEXTS = {"dense": ("sampled", "draft"), "tied": ("penalised", "lookup"), "mixture": ("greedy", "draft-tree"),
         "recurrent": ("filtered", "draft-tree")}  # fmt: skip
"""Sampling and strategy of each kind's texts, beside plain ones."""


def decoder(
    folder: Path, first: int, rest: torch.device = HOST, front: torch.device = HOST, dtype: torch.dtype = torch.float32
) -> DeviceDecoder:
    """A model with its `first` layers on the device `front`."""
    opened, gpus = Checkpoint.open(folder), dict[str, torch.device]({"cuda": rest, "second-gpu": front})
    context = min(opened.config.context, CONTEXT)
    return load_model(opened, Model(opened.config, "cuda", first=first), context, gpus, dtype)


def pair(folder: Path, small: DeviceDecoder, first: int, rest: torch.device, front: torch.device) -> Runner:
    return device_runner(decoder(folder, first, rest, front), small, VOCAB, rest, room=1 << 30)


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_on_two_gpus_writes_what_it_writes_on_one(kind: str, tmp_path: Path) -> None:
    """Whichever has the head, or the draft; between them go hidden states, and tokens and places of a pass."""
    folder = checkpoint(tmp_path / "target", **KINDS[kind])
    draft, (name, strategy) = perturbed(tmp_path / "draft", folder, 0.05), TEXTS[kind]
    rest, front = (FIRST, SECOND) if kind == "tied" else (SECOND, FIRST)
    expected = write(pair(folder, decoder(draft, 0), 0, HOST, HOST), "plain", 0, SAMPLINGS[name], tokens=8)
    with fake_torch(2, computes=True) as fake:
        runner = pair(folder, decoder(draft, 0, front if kind == "dense" else rest), 1, rest, front)
        assert runner.passes is None, "replies take turns"
        for _ in range(2):
            assert write(runner, strategy, 3, SAMPLINGS[name], tokens=8)[:8] == expected
            assert write(runner, "plain", 0, SAMPLINGS[name], tokens=8) == expected
        assert not fake.runtime.problems
        assert {graph.gpu for graph in fake.runtime.captures} == {0, 1}
        row = 4 * runner.target.model.config.hidden
        assert max(fake.across) in (64 * row, 256 * row), "the hidden states of a prompt's pass"


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_two_gpus_are_those_of_one(kind: str, tmp_path: Path) -> None:
    """After a prompt of two passes, of one row and of several."""
    folder, text = checkpoint(tmp_path / "target", **KINDS[kind]), tokens(90)

    def logits(model: DeviceModel) -> list[Tensor]:
        for first in (0, 64):
            model.write(text[first : first + 64], first)
            model.checkpoint()
        return [model.logits_after(text[:rows], 90, NOTHING, rows).clone() for rows in (1, 3)]

    def model(first: int, rest: torch.device, front: torch.device) -> DeviceModel:
        made, graphs = decoder(folder, first, rest, front), Graphs(rest, [])
        if first:
            made.use(graphs, Graphs(front, []))
        return DeviceModel(made, "target", VOCAB, graphs, rest)

    expected = logits(model(0, HOST, HOST))
    with fake_torch(2, computes=True) as fake:
        found = logits(model(1, SECOND, FIRST))
        assert all(map(torch.equal, found, expected))
        assert not fake.runtime.problems


def test_a_pair_is_loaded_to_both_gpus_by_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the runner tells what is where, and what such a target cannot do."""
    monkeypatch.setattr(gpu.CHOSEN, "index", 1)
    monkeypatch.setattr(gpu.SECOND, "index", 0)
    opened = Checkpoint.open(checkpoint(tmp_path, **SHAPE | {"num_hidden_layers": 3}))
    spec = PairSpec("p", "P", ModelSource(path=str(tmp_path)))
    made = plan(Model(opened.config, "cuda", first=2), None, CONTEXT)
    assert made.places == ("second-gpu", "cuda")
    with fake_torch(2) as fake:
        monkeypatch.setattr(torch.cuda, "get_device_name", "card {}".format)
        runner = load_runner(spec, opened, None, made, lambda: None, None)
        assert runner.device == "card cuda:1, 2 of 3 layers on a second GPU (card cuda:0)"
        assert runner.second_memory == pytest.approx(made.need("second-gpu").total - GPU_RUNTIME, rel=0.01)
        assert not fake.runtime.problems
    reasons = {status.name: status.reason for status in runner.statuses if not status.available}
    for name in ("early-exit", "swift", "eagle3", "mtp"):
        assert reasons[name] == "the target's layers lie on two GPUs"
    assert {"plain", "lookup", "lookahead", "auto"} <= runner.drafters.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_each_gpu_holds_is_planned(kind: str, tmp_path: Path) -> None:
    """To the byte, but for the rows of a pass on their way."""
    folder = checkpoint(tmp_path, **KINDS[kind])
    made = decoder(folder, 1, dtype=torch.float16)
    front, rest = made.halves
    planned = plan(Model(made.config, "cuda", first=1), None, made.context, processors(HOST))
    wanted = planned.need("second-gpu").total, planned.need("cuda").total - verifying(made.config)
    unread = front.weights.tokens
    assert unread is not None
    held = front.memory() - unread.nbytes, rest.memory()
    assert wanted == tuple(one + GPU_RUNTIME for one in held)


def test_kernels_of_both_gpus_are_compiled_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked = checkpoint(tmp_path, **SHAPE), list[tuple[object, torch.device]]()

    def noted(run: partial[object], device: torch.device, _: object) -> None:
        asked.append((run.func, device))

    monkeypatch.setattr(runners, "compile_ahead", noted)
    with fake_torch(2, computes=True) as fake:
        device_runner(decoder(folder, 1, FIRST, SECOND), None, VOCAB, FIRST).prepare(lambda _: None)
        assert asked == [(runners.rehearse, FIRST), (runners.rehearse, SECOND)]
        assert not fake.runtime.problems


def test_a_rehearsal_has_both_halves(tmp_path: Path) -> None:
    made = decoder(checkpoint(tmp_path, **KINDS["recurrent"]), 1)
    short = blank(made)
    assert isinstance(short, CutDecoder)
    layers = *short.front.config.recipe.layers, *short.rest.recipe.layers
    assert [type(layer.mixer) for layer in layers] == [Delta, Attention]


def test_a_target_on_two_gpus_reads_text_alone(tmp_path: Path) -> None:
    """Pictures are refused, and take no buffers."""
    folder = saved("qwen3_vl", tmp_path, num_hidden_layers=2)
    opened, spec, made = Checkpoint.open(folder), PairSpec("p", "P", ModelSource(path=str(folder))), decoder(folder, 1)
    assert [half.buffers.pictures for half in made.halves] == [None, None]
    assert decoder(folder, 0).buffers.pictures is not None
    runner = device_runner(made, None, VOCAB, HOST)
    assert opened_album(spec, opened, runner, opened.tokenizer()).sees
    album = opened_album(spec, opened, runner, opened.tokenizer(), cut=True)
    seeing = [Message("user", "what is it?", pictures=(picture(),))]
    with pytest.raises(EngineError, match="P reads text alone here, as the target's layers lie on two GPUs"):
        album.check(seeing)
    planned = plan(Model(opened.config, "cuda", first=1), None, CONTEXT)
    assert with_tower(opened, planned) == (planned, HOST, "")


def test_nothing_is_learnt_from_a_target_on_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps no hidden states between its layers."""
    folder = checkpoint(tmp_path / "m", **SHAPE)
    listed = Pair(PairSpec("p", "P", ModelSource(path=str(folder))))
    data, report = cast(TuneData, None), cast(TuneReport, None)
    order = TuneOrder(listed, "draft", "draft", data, 1, 1, tmp_path / "models.toml", report, lambda: False)
    made = device_runner(decoder(folder, 1), None, VOCAB, HOST)
    monkeypatch.setattr("specchat.engine.loading.load", lambda *_: SimpleNamespace(target=made.target))
    with pytest.raises(EngineError) as caught:
        work.loaded(order)
    words = 'the target\'s layers lie on two GPUs, and this needs one device, as "--device cpu" has it.'
    assert caught.value.message == f'No draft for pair "p": {words}'
