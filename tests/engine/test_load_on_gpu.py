"""Loading where the GPU is at fault: what may go on goes on, on the CPU, and says so."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.errors import EngineError, PageLockRefused
from specchat.engine.hardware import page_locked
from specchat.engine.hardware.gpu import CHOSEN, Gpu
from specchat.engine.hardware.gpu_failure import GpuLost
from specchat.engine.loading import load, native, placing
from specchat.engine.loading.native import FULL
from specchat.engine.memory import devices
from specchat.engine.memory.devices import Machine
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import GIB, SPARE, Plan, plan
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import Device, ModelSource, PairSpec
from specchat.engine.runners.load import load_runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_gpu_trouble import check_reply
from tests.engine.tiny import FAMILIES, checkpoint

pytestmark = pytest.mark.usefixtures("unmeasured")

ILLEGAL = RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
ROOMY = Machine(Gpu("RTX 4090", 20 * GIB), 64 * GIB)


@dataclass
class BrokenGpu:
    """Stands for `load_runner`: loading on the GPU fails, on the CPU it is the real one."""

    error: Exception
    places: list[str] = field(default_factory=list)

    def __call__(self, pair: PairSpec, target: Any, draft: Any, plan: Any, *others: Any) -> Any:
        self.places.append(plan.target.place)
        if plan.target.place == "cuda":
            raise self.error
        return load_runner(pair, target, draft, plan, *others)


@pytest.fixture
def pair(tmp_path: Path) -> PairSpec:
    return PairSpec("p", "P", ModelSource(path=str(checkpoint(tmp_path / "m"))))


def on(device: Device, pair: PairSpec) -> PairSpec:
    return PairSpec(pair.id, pair.name, ModelSource(path=pair.target.path, device=device))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> BrokenGpu:
    made = BrokenGpu(RuntimeError("PassManager::run failed\nmore"))
    monkeypatch.setattr(native, "load_runner", made)
    monkeypatch.setattr(devices, "this_machine", lambda _: ROOMY)
    return made


def test_a_pair_that_may_run_anywhere_goes_to_the_cpu(broken: BrokenGpu, pair: PairSpec) -> None:
    told: list[Loading] = []
    loaded = load(pair, told.append)
    assert broken.places == ["cuda", "cpu"]
    assert loaded.info.load.device.startswith("cpu")
    assert loaded.info.notes.note == "the GPU failed: PassManager::run failed"
    assert any("going to the CPU" in loading.what for loading in told)


def test_an_error_that_lasts_is_left_to_another_process(broken: BrokenGpu, pair: PairSpec) -> None:
    """This one could not use the GPU again, neither for this pair nor for others."""
    broken.error = ILLEGAL
    with pytest.raises(GpuLost) as caught:
        load(pair, lambda _: None)
    assert broken.places == ["cuda"]
    assert caught.value.failed == "CUDA error: an illegal memory access was encountered"
    assert "while P was being loaded" in caught.value.message


@pytest.mark.parametrize("device", ["cuda", "both-gpus"])
def test_a_pair_that_asks_for_the_gpu_does_not_go_to_the_cpu(
    device: Device, broken: BrokenGpu, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "this_machine", lambda _: replace(ROOMY, second=ROOMY.gpu))
    with pytest.raises(EngineError, match=rf'asks for device = "{device}": the GPU failed \(PassManager'):
        load(on(device, pair), lambda _: None)
    broken.error = ILLEGAL
    with pytest.raises(GpuLost) as caught:
        load(on(device, pair), lambda _: None)
    assert caught.value.bound
    assert broken.places == ["cuda", "cuda"]


def test_main_memory_that_is_not_locked_sends_a_pair_to_the_cpu(broken: BrokenGpu, pair: PairSpec) -> None:
    broken.error = PageLockRefused(3 * GIB, 2)
    loaded = load(pair, lambda _: None)
    assert broken.places == ["cuda", "cpu"]
    reason = "the GPU cannot read 3.0 GiB of the model in main memory (CUDA error 2)"
    assert loaded.info.notes.note == f"the GPU failed: {reason}"
    with pytest.raises(EngineError, match=r'^The GPU cannot read 3\.0 GiB .* free main memory, or .*device = "cpu"\.$'):
        load(on("cuda", pair), lambda _: None)


def test_the_price_of_experts_in_main_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor stands for the GPU here."""
    folder = checkpoint(tmp_path / "sparse", **FAMILIES["qwen3_moe"])
    config = Checkpoint.open(folder).config
    planned = plan(Model(config, "cuda", half=True, experts_in_main=1), None, config.context)
    free = int(planned.need("cuda").total / (1 - SPARE)) + 1

    def stand_in(pair: PairSpec, target: Any, draft: Any, planned: Any, *others: Any) -> Any:
        assert planned.target.experts_in_main == 1
        return load_runner(pair, target, draft, planned.on("cpu"), *others)

    monkeypatch.setattr(native, "load_runner", stand_in)
    monkeypatch.setattr(devices, "this_machine", lambda _: Machine(Gpu("RTX 4060", free), 64 * GIB))
    info = load(PairSpec("p", "P", ModelSource(path=str(folder))), lambda _: None).info
    assert info.notes.warning.startswith("Experts of 1 of 3 layers lie in main memory: about 0.0 ms a token")


@pytest.mark.parametrize("roomy", [True, False])
def test_what_the_system_does_not_lock_goes_to_the_gpu_where_it_fits(
    roomy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found out before anything is read; the processor stands for the GPU here."""
    folder = checkpoint(tmp_path / "inputs", **FAMILIES["gemma4_e"])
    config = Checkpoint.open(folder).config
    planned, read = plan(Model(config, "cuda", half=True), None, config.context), list[Plan]()
    free = int(planned.need("cuda").total / (1 - SPARE)) + 1 + (2 * planned.locked if roomy else 0)

    def stand_in(pair: PairSpec, target: Any, draft: Any, planned: Any, *others: Any) -> Any:
        read.append(planned)
        return load_runner(pair, target, draft, planned.on("cpu"), *others)

    def lockable(size: int, device: object) -> int:
        assert (size, read, device) == (planned.locked, [], CHOSEN.device)
        return size // 4

    monkeypatch.setattr(native, "load_runner", stand_in)
    monkeypatch.setattr(placing, "_wrong", lambda *_: "")
    monkeypatch.setattr(page_locked, "lockable", lockable)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "this_machine", lambda _: Machine(Gpu("RTX 4060", free), 64 * GIB))
    info = load(PairSpec("p", "P", ModelSource(path=str(folder))), lambda _: None).info
    (made,) = read
    assert (made.target.place, made.target.tables_on_gpu) == (("cuda", True) if roomy else ("cpu", False))
    assert info.notes.note.endswith(
        "the GPU was to read 0.0 GiB of main memory, and the system locks some 0.0 for it (WSL 1 in all, 0.5 in "
        f"Docker), so {'the rest lies on the GPU' if roomy else 'the pair runs on the CPU'}"
    )


def test_a_card_that_is_full_by_then_sends_a_pair_to_the_cpu(broken: BrokenGpu, pair: PairSpec) -> None:
    broken.error = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    session = load(pair, lambda _: None)
    assert broken.places == ["cuda", "cpu"]
    assert (
        session.info.notes.warning
        == f"The GPU's memory ran out while p was being loaded, so it runs on the CPU. {FULL}"
    )
    check_reply(session)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("left", [(4096,), (4096, 2048), (4096, 2048, 1024)])
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_smaller_context_is_tried_before_the_cpu(
    left: tuple[int, ...], device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As weights are read or passes captured, of what is free by then; the processor stands for the GPU."""
    folder = checkpoint(tmp_path / "long", max_position_embeddings=8192)
    tried, config = list[tuple[str, int]](), Checkpoint.open(folder).config
    fitting = plan(Model(config, "cuda", half=True), None, 5000).need("cuda").total
    free = [20 * GIB, int(fitting / (1 - SPARE))]

    def run(pair: PairSpec, target: Any, draft: Any, planned: Any, *others: Any) -> Any:
        tried.append((planned.target.place, planned.context))
        if planned.target.place == "cuda" and planned.context > left[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return load_runner(pair, target, draft, planned.on("cpu"), *others)

    def machine(_: PairSpec) -> Machine:
        return Machine(Gpu("RTX 4060", free[min(1, len(tried))]), 64 * GIB)

    monkeypatch.setattr(native, "load_runner", run)
    monkeypatch.setattr(devices, "this_machine", machine)
    info = load(on(device, PairSpec("p", "P", ModelSource(path=str(folder)))), lambda _: None).info
    assert tried == [("cuda", 8192), *(("cuda", context) for context in left)]
    assert info.context == left[-1]
    assert info.notes.warning == (
        f"The GPU's memory ran out while p was being loaded, so its context has {left[-1]} tokens. {FULL}"
    )


def test_a_smaller_context_takes_no_second_gpu_that_was_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "long", max_position_embeddings=8192)
    opened, source = Checkpoint.open(folder), ModelSource(path=str(folder))
    pair = PairSpec("p", "P", source, source)
    alone = plan(Model(opened.config, "cuda"), None, 4096).need("cuda").total
    there = Machine(Gpu("RTX 3060", int(alone / (1 - SPARE)) + 1), 0, second=Gpu("RTX 3050", 20 * GIB, index=1))
    monkeypatch.setattr(devices, "this_machine", lambda _: there)
    before = devices.place(pair, opened, opened, 8192, Machine(Gpu("RTX 4090", 20 * GIB), 0))
    apart = placing.smaller(pair, opened, opened, replace(before, plan=before.plan.apart()))
    assert apart is not None
    assert apart.plan.places == ("cuda", "second-gpu")
    less = placing.smaller(pair, opened, opened, before)
    assert less is None or "second-gpu" not in less.plan.places


def test_where_no_smaller_context_fits_it_is_the_cpu_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, made = (
        checkpoint(tmp_path / "long", max_position_embeddings=8192),
        BrokenGpu(RuntimeError("CUDA out of memory")),
    )
    monkeypatch.setattr(native, "load_runner", made)
    monkeypatch.setattr(
        devices, "this_machine", lambda _: Machine(Gpu("RTX 4060", 1000 if made.places else 20 * GIB), 64 * GIB)
    )
    assert load(PairSpec("p", "P", ModelSource(path=str(folder))), lambda _: None).info.context == 8192
    assert made.places == ["cuda", "cpu"]


@pytest.mark.parametrize("words", ["CUDA out of memory", "[enforce fail] DefaultCPUAllocator: can't allocate memory"])
def test_memory_that_runs_out_where_nothing_else_is_left_is_said(words: str, broken: BrokenGpu, pair: PairSpec) -> None:
    """The pair asks for the GPU, or main memory ran out."""
    broken.error = RuntimeError(words)
    with pytest.raises((RuntimeError, EngineError), match="memory"):
        load(on("cuda", pair) if "CUDA" in words else pair, lambda _: None)
    assert broken.places == ["cuda"]


def test_what_the_device_lacks_is_noted(pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "this_machine", lambda _: Machine("no NVIDIA GPU is found", 64 * GIB))
    assert load(pair, lambda _: None).info.notes.note == "no NVIDIA GPU is found"
    assert load(on("cpu", pair), lambda _: None).info.notes.note == ""
