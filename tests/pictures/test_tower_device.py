"""A tower stands on its target's GPU where that has room, and elsewhere in main memory; for a GPU stands a second name
of main memory."""

from dataclasses import replace

import pytest
import torch

from specchat.engine.errors import EngineError
from specchat.engine.hardware.gpu import CHOSEN, Gpu
from specchat.engine.loading import heads
from specchat.engine.loading.pictures import tower_need, with_draft_tower, with_tower
from specchat.engine.loading.placing import placed
from specchat.engine.loading.progress import Bar
from specchat.engine.memory import devices
from specchat.engine.memory.devices import Machine
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import GIB, SPARE, Plan, plan
from specchat.engine.pictures import tower as towers
from specchat.engine.pictures.files import tower_files, tower_values
from specchat.engine.pictures.tower import CPU, LOOKING, Processed, Tower
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from tests.pictures.whole import KINDS, picture, saved

GPU = torch.device("cpu", 0)


@pytest.fixture(scope="module", params=KINDS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(saved(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(saved("mistral3", tmp_path_factory.mktemp("m")))


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free bytes of the GPU."""
    found = {"bytes": 8 * GIB}
    monkeypatch.setattr(towers, "free_gpu_memory", lambda _: found["bytes"])
    return found


def opened(checkpoint: Checkpoint, device: torch.device) -> tuple[Tower, Processed]:
    tower = Tower(checkpoint, checkpoint.tokenizer().vocabulary, device)
    return tower, tower.processed(picture().data)


def test_all_of_a_tower_goes_to_the_device(checkpoint: Checkpoint) -> None:
    tower, _ = opened(checkpoint, CPU)
    tensors = tower_files(checkpoint, checkpoint.tokenizer().vocabulary).tensors()
    model = tower._read(tensors, torch.device("meta"))
    held = [*model.parameters(), *model.buffers()]
    assert {one.device.type for one in held} == {"meta"}
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    assert tower_values(checkpoint) == sum(map(torch.Tensor.numel, tensors.values()))


def test_a_device_finds_the_same_rows(mistral: Checkpoint, free: dict[str, int]) -> None:
    (here, seen), (there, _) = opened(mistral, CPU), opened(mistral, GPU)
    assert torch.equal(here.rows(seen), there.rows(seen))
    assert (here._models.keys(), there._models.keys()) == ({CPU}, {GPU})
    assert here.memory() == there.memory() == 4 * tower_values(mistral)
    free["bytes"] = 1000
    with pytest.raises(EngineError, match=r"takes 0\.0 GiB of GPU memory, and"):
        there.rows(seen)


def test_the_processor_looks_at_larger_pictures(mistral: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal pictures have one place, so that equal ids have equal rows."""
    tower, small = opened(mistral, GPU)
    large = tower.processed(picture(56, 56).data)
    assert tower._working(small) < tower._working(large)
    monkeypatch.setattr(towers, "LOOKING", tower._working(small))
    for seen in (large, small, large):
        tower.rows(seen)
    assert [*tower._models] == [CPU, GPU]
    assert tower.memory() == 2 * 4 * tower_values(mistral)


def test_what_others_took_of_the_gpu_leaves_the_tower_in_main_memory(mistral: Checkpoint, free: dict[str, int]) -> None:
    """For good, as pictures that were looked at have their rows from there."""
    tower, seen = opened(mistral, GPU)
    free["bytes"] = LOOKING
    tower.rows(seen)
    free["bytes"] = 8 * GIB
    tower.rows(seen)
    assert [*tower._models] == [CPU]


def planned(checkpoint: Checkpoint, beside: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, int, object, str]:
    """A target on a GPU with so many bytes free beside it, and what its tower adds."""
    alone = plan(Model(checkpoint.config, "cuda"), None, 128)
    gpu = Gpu("card", int((alone.need("cuda").total + beside) / (1 - SPARE)) + 1)
    monkeypatch.setattr(heads, "find_gpu", lambda: gpu)
    found, device, note = with_tower(checkpoint, alone)
    return found, found.need("cuda").total - alone.need("cuda").total, device, note


def test_a_plan_counts_the_tower_where_it_has_room(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 4 * tower_values(checkpoint) + LOOKING
    _, more, device, note = planned(checkpoint, needed, monkeypatch)
    assert (more, device, note) == (needed, CHOSEN.device, "")
    _, more, device, note = planned(checkpoint, needed - 100, monkeypatch)
    assert (more, device) == (0, CPU)
    assert note == "the processor looks at pictures, as their tower takes 2.0 GiB of GPU memory that are not free"


def test_a_context_as_long_as_fits_leaves_the_tower_its_room(
    mistral: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has that with the usual context."""
    target = replace(mistral, config=replace(mistral.config, context=32_768))
    pair = PairSpec("p", "P", ModelSource(path="/there"), long_context=True)

    def longest(context: int, beside: int) -> int:
        total = plan(Model(target.config, "cuda"), None, context).need("cuda").total
        gpu = Gpu("card", int((total / (1 - SPARE) + beside) / 0.9) + 1000)
        monkeypatch.setattr(devices, "this_machine", lambda _: Machine(gpu, 64 * GIB))
        return placed(pair, target, None, Bar(lambda _: None)).plan.context

    needed = tower_need(target, on_gpu=True)
    assert longest(20_480, 0) == longest(20_480, needed) == 20_480
    assert longest(20_480, needed // 2) > 20_480


def test_the_plan_of_a_processor_counts_it_as_it_is_held(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host = plan(Model(checkpoint.config, "cpu"), None, 128)
    monkeypatch.setattr(heads, "free_memory", lambda: 8 * GIB)
    found, device, note = with_tower(checkpoint, on_host)
    assert (device, note) == (CPU, "")
    assert found.need("cpu").total - on_host.need("cpu").total == 4 * tower_values(checkpoint)
    monkeypatch.setattr(heads, "free_memory", lambda: on_host.need("cpu").total)
    found, device, note = with_tower(checkpoint, on_host)
    assert (found, device) == (on_host, CPU)
    assert note == "pictures take a tower of 0.0 GiB, which are not free beside the models"


def test_a_drafts_tower_lies_beside_the_targets_where_both_have_room(
    mistral: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(mistral.config, "cuda")
    both = plan(model, model, 128)
    needed = 4 * tower_values(mistral)
    for free, more, device in ((needed, needed, CHOSEN.device), (needed - 1000, 0, CPU)):
        gpu = Gpu("card", int((both.need("cuda").total + free) / (1 - SPARE)) + 1)
        monkeypatch.setattr(heads, "find_gpu", lambda gpu=gpu: gpu)
        found, where = with_draft_tower(mistral, mistral, both, CHOSEN.device)
        assert (found.need("cuda").total - both.need("cuda").total, where) == (more, device)
    assert with_draft_tower(mistral, mistral, both, CPU) == (both, CPU)
    apart = replace(both, draft=replace(model, place="cpu"))
    assert with_draft_tower(mistral, mistral, apart, CHOSEN.device) == (apart, CPU)
