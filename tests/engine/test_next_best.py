"""Where the kernels cannot run on a GPU: transformers on it, else the CPU, each with its sentence."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.gpu_checks import card, remembered
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.hardware import gpu_record, page_locked
from specchat.engine.hardware.accelerator import Accelerator, find_accelerator, kind
from specchat.engine.hardware.gpu import CHOSEN, SECOND, Gpu
from specchat.engine.hardware.gpu_failure import REPORT, UNTIL, GpuLost, describe, first_line, without_gpu
from specchat.engine.hardware.gpu_record import MAX_CARDS, MAX_PAIRS, UNENDED, VARIABLE, Boot, GpuRecord
from specchat.engine.loading import hf, load, native, next_best, placing
from specchat.engine.memory import devices
from specchat.engine.memory.devices import Machine
from specchat.engine.memory.plan import GIB, SPARE
from specchat.engine.protocol.pair import Device, ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.runners.load import load_runner
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import checkpoint
from tests.parts import changed

pytestmark = pytest.mark.usefixtures("unmeasured")

OLD = "the GPU (Tesla T4) has compute capability 7.5, and 8.0 or newer is needed"
ILLEGAL = RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
ROOMY = Machine(Gpu("RTX 4090", 20 * GIB), 64 * GIB)


def fake_torch(only: str, product: Callable[[], float] = lambda: 512.0) -> Any:
    """A torch with one kind of GPU, or with none."""

    class Ones:
        def __matmul__(self, other: object) -> Any:
            del other
            return SimpleNamespace(sum=product)

    def runtime(name: str) -> Any:
        return SimpleNamespace(
            is_available=lambda: name == only,
            get_device_name=lambda device: f"the card {device}",
            mem_get_info=lambda device: (3 * GIB + int("1" in device), 4 * GIB),
            recommended_max_memory=lambda: 5 * GIB,
            driver_allocated_memory=lambda: GIB,
        )

    mps = runtime("mps")

    def ones(*_: int, device: str) -> Ones:
        assert device.partition(":")[0] == only
        return Ones()

    backends = SimpleNamespace(mps=mps)
    return SimpleNamespace(cuda=runtime("cuda"), xpu=runtime("xpu"), mps=mps, backends=backends, ones=ones)


def test_any_gpu_that_multiplies_is_found() -> None:
    assert find_accelerator(fake_torch("cuda")) == Accelerator("cuda", "the card cuda:0", 3 * GIB)
    assert find_accelerator(fake_torch("xpu")) == Accelerator("xpu", "the card xpu", 3 * GIB)
    assert find_accelerator(fake_torch("mps")) == Accelerator("mps", "Apple GPU", 4 * GIB)
    assert find_accelerator(fake_torch("none")) == "torch sees no GPU"
    assert kind(fake_torch("none")) is None


def test_of_several_gpus_the_chosen_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It multiplies, is named and measured, and is the one that is remembered."""
    told: list[torch.device] = []

    def properties(device: torch.device) -> SimpleNamespace:
        told.append(device)
        return SimpleNamespace(name="a card", uuid=f"{device.index}a2b3c4d-5e6f")

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(GpuRecord, "of", lambda card, _: card.splitlines()[0])
    card.known_by.cache_clear()
    for index in (0, 1, 1):
        monkeypatch.setattr(CHOSEN, "index", index)
        free = 3 * GIB + index
        assert find_accelerator(fake_torch("cuda")) == Accelerator("cuda", f"the card cuda:{index}", free)
        assert card.record() == f"a card (GPU-{index}a2b3c4d)", "two cards of a kind were one"
    assert len(told) == 2
    card.known_by.cache_clear()


def test_a_gpu_that_does_not_multiply_is_none() -> None:
    def too_old() -> float:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")

    words = "the GPU fails: CUDA error: no kernel image is available for execution on the device"
    assert find_accelerator(fake_torch("cuda", too_old)) == words
    assert find_accelerator(fake_torch("mps", lambda: 0.0)) == "the Apple GPU multiplies wrongly"


@dataclass
class Transformers:
    """Stands for the backend of transformers; a pair it loads really runs on the CPU."""

    error: Exception | None = None
    pairs: list[PairSpec] = field(default_factory=list)

    def __call__(self, pair: PairSpec, progress: Any, make_room: Any) -> Session:
        self.pairs.append(pair)
        if self.error is not None:
            raise self.error
        session = native.load(without_gpu(pair), progress, make_room)
        session.info = changed(session.info, device="transformers, Tesla T4, float16")
        return session


@pytest.fixture
def pair(tmp_path: Path) -> PairSpec:
    return PairSpec("p", "P", ModelSource(path=str(checkpoint(tmp_path / "m"))))


def on(device: Device, pair: PairSpec) -> PairSpec:
    return replace(pair, target=replace(pair.target, device=device))


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Transformers:
    """With a GPU that torch has and the kernels cannot use."""
    made, found = Transformers(), Accelerator("cuda", "Tesla T4", 12 * GIB)
    monkeypatch.setattr(hf, "load", made)
    for module in (placing, next_best):
        monkeypatch.setattr(module, "find_accelerator", lambda: found)
    monkeypatch.setattr(card, "record", lambda *_: GpuRecord.of("T4"))
    monkeypatch.setattr(devices, "this_machine", machine(Machine(OLD, 64 * GIB)))
    return made


def machine(there: Machine) -> Callable[[PairSpec], Machine]:
    """Which a pair for the CPU alone does not ask."""
    return lambda pair: Machine("it was not asked for", there.free) if pair.target.device == "cpu" else there


def loaded(pair: PairSpec) -> Session:
    return load(pair, lambda _: None)


def test_a_model_that_the_kernels_do_not_take_runs_by_transformers_on_the_gpu(
    transformers: Transformers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "wide", num_attention_heads=2, num_key_value_heads=1, head_dim=528)
    wide = PairSpec("p", "P", ModelSource(path=str(folder)))
    monkeypatch.setattr(devices, "this_machine", machine(ROOMY))
    for asked in (wide, on("cuda", wide)):
        session = loaded(asked)
        assert session.info.load.device == "transformers, Tesla T4, float16"
        assert session.info.notes.warning.startswith("Attention heads of 528 values: the GPU kernels take ")
        assert session.info.notes.warning.endswith("at most, so transformers runs p on Tesla T4.")
    assert [pair.target.device for pair in transformers.pairs] == ["cuda", "cuda"]
    assert loaded(on("cpu", wide)).info.load.device.startswith("cpu")


def test_an_old_card_runs_by_transformers_and_says_so(transformers: Transformers, pair: PairSpec) -> None:
    for asked in (pair, on("cuda", pair)):
        info = loaded(asked).info
        assert info.load.device == "transformers, Tesla T4, float16"
        assert info.notes.warning == f"T{OLD[1:]}, so transformers runs p on Tesla T4."
    assert {(made.backend, made.target.device) for made in transformers.pairs} == {("hf", "cuda")}
    assert loaded(on("cpu", pair)).info.notes.warning == ""
    assert len(transformers.pairs) == 2, "a pair for the CPU went to the GPU"


def test_other_makers_cards_run_by_transformers(
    transformers: Transformers, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (placing, next_best):
        monkeypatch.setattr(module, "find_accelerator", lambda: Accelerator("mps", "Apple GPU", None))
    told = "Specchat's own kernels are for NVIDIA GPUs, so transformers runs p on Apple GPU."
    assert loaded(pair).info.notes.warning == told
    assert len(transformers.pairs) == 1


def test_where_transformers_cannot_either_it_is_the_cpu_with_both_reasons(
    transformers: Transformers, pair: PairSpec
) -> None:
    transformers.error = ModelError("It does not fit.")
    info = loaded(pair).info
    assert info.load.device.startswith("cpu")
    assert (
        info.notes.warning
        == f"T{OLD[1:]}, and transformers cannot run p there (It does not fit), so it runs on the CPU."
    )
    with pytest.raises(
        EngineError, match=r'asks for device = "cuda": the GPU .Tesla T4.* Say device = "auto" or "cpu"'
    ):
        loaded(on("cuda", pair))


def failing(_: Notes) -> None:
    raise ILLEGAL


@dataclass
class Gpus:
    """A GPU that the kernels could run on; `check` stands for the quick part of the checks."""

    transformers: Transformers
    check: Callable[[Notes], None]
    checked: int = 0

    def quick(self, notes: Notes) -> None:
        self.checked += 1
        self.check(notes)


@pytest.fixture
def gpus(transformers: Transformers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    made = Gpus(transformers, lambda notes: notes.expect(False, "a row differs"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "data" / "gpu.json"))
    monkeypatch.setattr(devices, "this_machine", machine(ROOMY))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(remembered, "quick", made.quick)
    monkeypatch.setattr(remembered, "current", lambda _: nullcontext())
    return made


def test_kernels_that_fail_their_checks_are_not_used_and_not_checked_again(
    gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "The GPU failed {} (a row differs), so transformers runs p on Tesla T4. " + REPORT
    for when in ("its checks", "before"):
        assert loaded(pair).info.notes.warning == told.format(when)
    assert gpus.checked == 1
    monkeypatch.setattr(card, "record", lambda *_: GpuRecord.of("T4 with another driver"))
    assert loaded(pair).info.notes.warning == told.format("its checks")
    assert gpus.checked == 2


def test_kernels_that_pass_are_used_and_remembered(gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.check = lambda _: None
    runs: list[str] = []

    def run(*arguments: Any) -> Any:
        runs.append(arguments[3].target.place)
        raise ModelError("The weights are damaged.")

    monkeypatch.setattr(native, "load_runner", run)
    for _ in range(2):
        with pytest.raises(ModelError, match="damaged"):
            loaded(pair)
    assert (runs, gpus.checked) == (["cuda", "cuda"], 1)
    assert gpus.transformers.pairs == []


@dataclass
class TwoCards:
    """Two GPUs with room for the target of a pair on one and its draft on the other.

    `lost` are those that do not answer any more, `checked` those that were checked, `runs` the places of each load.
    """

    lost: set[torch.device] = field(default_factory=set)
    checked: list[torch.device] = field(default_factory=list)
    runs: list[tuple[str, ...]] = field(default_factory=list)

    def record(self, device: torch.device = CHOSEN.device) -> GpuRecord:
        def ask() -> None:
            if device in self.lost:
                raise ILLEGAL

        return GpuRecord.of(f"card {device}", ask)

    def run(self, *arguments: Any) -> Any:
        self.runs.append(arguments[3].places)
        raise ModelError("The weights are damaged.")


@pytest.fixture
def two(gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> TwoCards:
    made = TwoCards()
    gpus.check = lambda _: None
    monkeypatch.setattr(SECOND, "index", 1)
    monkeypatch.setattr(card, "record", made.record)
    monkeypatch.setattr(remembered, "current", lambda device: made.checked.append(device) or nullcontext())
    opened, roomy = Checkpoint.open(Path(str(pair.target.path))), replace(ROOMY, second=Gpu("RTX 3050", 4 * GIB))
    apart = replace(pair, draft=replace(pair.target, device="second-gpu"))
    need = devices.place(apart, opened, opened, 256, roomy).plan.need("cuda").total
    tight = replace(roomy, gpu=Gpu("RTX 3060", int(need / (1 - SPARE)) + 1))
    monkeypatch.setattr(devices, "this_machine", machine(tight))
    monkeypatch.setattr(native, "load_runner", made.run)
    return made


@pytest.mark.parametrize("right", [True, False])
def test_a_second_gpu_is_checked_before_a_draft_goes_there(
    right: bool, two: TwoCards, gpus: Gpus, pair: PairSpec
) -> None:
    """By a record of its own; with a fault there the draft runs on the CPU, and the target where it was."""
    gpus.check = lambda notes: notes.expect(right or two.checked[-1] == CHOSEN.device, "a row differs")
    with pytest.raises(ModelError, match="damaged"):
        loaded(replace(pair, draft=pair.target))
    assert two.checked == [SECOND.device, CHOSEN.device]
    assert two.runs == [("cuda", "second-gpu" if right else "cpu")]
    if not right:
        with pytest.raises(EngineError, match=r'"second-gpu": the GPU failed before \(a row differs\)'):
            loaded(replace(pair, draft=replace(pair.target, device="second-gpu")))


@pytest.mark.parametrize(
    ("lost", "named", "blamed"),
    [((1,), " card cuda:1", 1), ((0,), " card cuda:0", 0), ((0, 1), " card cuda:0", 0), ((), "", 0)],
)
def test_a_card_that_fails_in_a_reply_rests_alone(
    lost: tuple[int, ...], named: str, blamed: int, two: TwoCards, pair: PairSpec
) -> None:
    """And is named. Where both answer, or neither does, it counts for the target's, which goes to transformers."""
    drafting, words = replace(pair, draft=pair.target), first_line(ILLEGAL)
    for known in (1, 2):
        with pytest.raises(ModelError, match="damaged"):
            loaded(drafting)
        two.lost = {torch.device("cuda", index) for index in lost}
        told = describe(ILLEGAL, Generate(1, ()), "the log")
        assert told.startswith(f"The GPU{named} failed ({words}) while the reply was being written")
        assert GpuRecord.failed(words) == known
        two.lost = set()
    assert two.runs == [("cuda", "second-gpu")] * 2
    cards = [two.record(torch.device("cuda", index)).wrong("kernels", "p") for index in (0, 1)]
    assert cards[blamed] == words
    assert not cards[1 - blamed]
    with pytest.raises(ModelError, match="damaged"):
        loaded(drafting)
    assert two.runs[2] == (("cuda", "cpu") if blamed else ("cpu", "cpu"))


@pytest.mark.parametrize("lost", [0, 1])
def test_a_card_that_fails_as_a_pair_is_loaded_is_named(
    lost: int, two: TwoCards, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any) -> Any:
        two.lost = {torch.device("cuda", lost)}
        raise ILLEGAL

    monkeypatch.setattr(native, "load_runner", run)
    with pytest.raises(GpuLost, match=rf"^The GPU card cuda:{lost} failed \(CUDA error.* while P was being loaded"):
        loaded(replace(pair, draft=pair.target))
    assert GpuRecord.failed("x") == 1
    assert two.record(torch.device("cuda", lost)).fail("kernels", "again", "p") == 2


def test_a_second_gpu_is_checked_before_layers_go_there(
    gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_locked, "lockable", lambda size, _: size)
    monkeypatch.setattr(SECOND, "index", 1)
    monkeypatch.setattr(card, "record", lambda device=CHOSEN.device: GpuRecord.of(f"card {device}"))
    checked = list[torch.device]()
    monkeypatch.setattr(remembered, "current", lambda device: checked.append(device) or nullcontext())
    gpus.check = lambda notes: notes.expect(checked[-1] == CHOSEN.device, "a row differs")
    roomy = replace(ROOMY, second=Gpu("RTX 3050", 4 * GIB))
    monkeypatch.setattr(devices, "this_machine", machine(roomy))
    both = replace(pair, target=replace(pair.target, device="both-gpus"))
    with pytest.raises(EngineError, match=r'"both-gpus": the GPU failed its checks \(a row differs\)'):
        loaded(both)
    assert checked == [SECOND.device]


def test_checks_that_cannot_be_made_are_made_again(gpus: Gpus, pair: PairSpec) -> None:
    def fails(_: Notes) -> None:
        raise RuntimeError("PassManager::run failed\nmore")

    gpus.check = fails
    for _ in range(2):
        assert "failed its checks (PassManager::run failed), so transformers" in loaded(pair).info.notes.warning
    assert gpus.checked == 2


def test_a_pair_that_asks_for_the_gpu_is_told_once_each_way_failed_twice(gpus: Gpus, pair: PairSpec) -> None:
    """Each time in a fresh process."""
    gpus.check, gpus.transformers.error = failing, ILLEGAL
    for known in (1, 2, 1, 2):
        with pytest.raises(GpuLost) as lost:
            loaded(on("cuda", pair))
        assert GpuRecord.failed(lost.value.failed) == known, "the next process would not know"
    with pytest.raises(EngineError, match=r'asks for device = "cuda": .*transformers cannot run it there \(CUDA error'):
        loaded(on("cuda", pair))


def test_a_check_that_ends_its_process_twice_rests(gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill or a loss of power may come once; a card that hangs comes again."""

    class Killed(BaseException):
        """Stands for the end of the process."""

    def kills(_: Notes) -> None:
        raise Killed

    gpus.check = kills
    for _ in range(2):
        with pytest.raises(Killed):
            loaded(pair)
    assert f"({UNENDED}), so transformers runs p" in loaded(pair).info.notes.warning
    assert gpus.checked == 2
    monkeypatch.setattr(Boot, "now", lambda: Boot(id="after a loss of power", offset=0))
    gpus.check = lambda notes: notes.expect(False, "a row differs")
    assert "(a row differs), so transformers runs p" in loaded(pair).info.notes.warning
    assert gpus.checked == 3


def test_an_engine_that_is_told_to_end_blames_no_check(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the check hung, and that is why."""
    del gpus
    record = GpuRecord.of("T4")
    record.fail("kernels", "before")
    record.begin("kernels")
    GpuRecord.leave()
    assert record.wrong("kernels") is None
    record.begin("kernels")
    monkeypatch.setattr(gpu_record, "HANG_S", 0.0)
    GpuRecord.leave()
    assert record.wrong("kernels") == UNENDED
    record.keep("kernels", "")
    GpuRecord.leave()
    assert record.wrong("kernels") == "", "a check that has ended is known"


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), RuntimeError("PassManager::run failed")])
def test_a_check_that_tells_nothing_is_forgotten(error: Exception, gpus: Gpus) -> None:
    def fails(_: Notes) -> None:
        assert GpuRecord.of("T4").wrong("kernels") == UNENDED
        raise error

    gpus.check = fails
    GpuRecord.of("T4").fail("kernels", "before")
    remembered.wrong("p", CHOSEN.device, lambda _: None)
    assert gpus.checked == 1
    assert GpuRecord.of("T4").wrong("kernels") is None


def test_a_gpu_that_fails_each_way_ends_on_the_cpu(gpus: Gpus, pair: PairSpec) -> None:
    """Each time in a fresh process, which knows what the ones before found."""
    gpus.check, gpus.transformers.error = failing, ILLEGAL
    for _ in range(4):
        with pytest.raises(GpuLost) as lost:
            loaded(pair)
        assert GpuRecord.failed(lost.value.failed), "the next process would not know"
    info = loaded(pair).info
    assert info.load.device.startswith("cpu")
    assert info.notes.warning.startswith(
        "The GPU failed before (CUDA error: an illegal memory access was encountered), "
    )
    assert info.notes.warning.endswith(f"so it runs on the CPU. {UNTIL}")
    assert (gpus.checked, len(gpus.transformers.pairs)) == (2, 2)
    assert not GpuRecord.failed("on the CPU there is none"), "a card was blamed for what a processor did"


def test_a_pair_that_stays_loaded_keeps_its_card(gpus: Gpus, pair: PairSpec) -> None:
    """Until another one takes its memory."""
    del gpus
    GpuRecord.use(GpuRecord.of("T4"))
    with pytest.raises(EngineError):
        loaded(replace(pair, target=replace(pair.target, path="/nowhere")))
    assert GpuRecord.failed("in the next reply")
    loaded(on("cpu", pair))
    assert not GpuRecord.failed("on the CPU there is none")


def test_a_pair_that_transformers_runs_may_blame_its_card(gpus: Gpus, pair: PairSpec) -> None:
    assert "so transformers runs p" in loaded(pair).info.notes.warning
    assert gpus.transformers.pairs
    assert [GpuRecord.failed("in a reply") for _ in range(2)] == [1, 2]
    assert GpuRecord.of("T4").wrong("transformers", "p") == "in a reply"
    assert GpuRecord.of("T4").wrong("transformers", "another") is None
    info = loaded(pair).info
    assert info.load.device.startswith("cpu")
    assert info.notes.warning.endswith(f"(in a reply), so it runs on the CPU. {UNTIL}")


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: unspecified launch failure",
        "CUDA error: unknown error",
        "CUDA error: GPU is lost",
        "CUDA error: the launch timed out and was terminated",
    ],
)
def test_a_failed_gpu_is_tried_once_more_and_again_after_a_sleep(
    words: str, gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels fail as the weights are read; each load is a fresh process."""
    gpus.check = lambda _: None
    places: list[str] = []

    def run(*arguments: Any) -> Any:
        places.append(arguments[3].target.place)
        raise RuntimeError(words)

    monkeypatch.setattr(native, "load_runner", run)

    def lost(known: int, asked: PairSpec = pair) -> None:
        with pytest.raises(GpuLost) as caught:
            loaded(asked)
        assert GpuRecord.failed(caught.value.failed) == known

    lost(1)
    lost(2)
    assert gpus.checked == 2, "a card that failed is checked before it is used"
    monkeypatch.setattr(native, "load_runner", load_runner)
    told = f"The GPU failed before ({words}), so transformers runs p on Tesla T4. {UNTIL}"
    assert loaded(pair).info.notes.warning == told
    monkeypatch.setattr(native, "load_runner", run)
    lost(1, replace(pair, id="another"))
    slept = Boot.now().model_copy(update={"offset": Boot.now().offset + 60})
    for later in (slept, slept.model_copy(update={"id": "another"})):
        monkeypatch.setattr(Boot, "now", lambda later=later: later)
        assert GpuRecord.of("T4").wrong("kernels", "p") != words
        lost(1)
    assert places == ["cuda"] * 5


def test_wrong_results_outlast_a_restart(gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(pair)
    monkeypatch.setattr(Boot, "now", lambda: Boot(id="another", offset=0))
    assert loaded(pair).info.notes.warning.endswith(f"(a row differs), so transformers runs p on Tesla T4. {REPORT}")
    assert gpus.checked == 1


@pytest.mark.parametrize("bound", ["target", "draft", "too large for main memory", "nothing"])
def test_a_pair_whose_loading_fails_goes_to_transformers(
    bound: str, gpus: Gpus, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps it from the CPU does not keep it from transformers."""
    if bound == "target":
        pair = on("cuda", pair)
    elif bound == "draft":
        pair = replace(pair, draft=replace(pair.target, device="cuda"))
    elif bound != "nothing":
        small = Machine(ROOMY.gpu, 0)
        monkeypatch.setattr(devices, "this_machine", lambda pair: ROOMY if pair.target.device == "cpu" else small)
    gpus.check = lambda _: None
    real = native.load_runner

    def run(pair: PairSpec, target: Any, draft: Any, plan: Any, *others: Any) -> Any:
        if plan.target.place == "cuda":
            raise RuntimeError("out of resource: shared memory")
        return real(pair, target, draft, plan, *others)

    monkeypatch.setattr(native, "load_runner", run)
    told = "The GPU failed (out of resource: shared memory), so transformers runs p on Tesla T4."
    assert loaded(pair).info.notes.warning == f"{told} {REPORT}"


@pytest.mark.parametrize("content", ["", "{", '{"version": 3, "cards": {}}', '{"version": 2, "cards": {"a": 3}}'])
def test_a_damaged_record_is_as_good_as_none(content: str, tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(content)
    record = GpuRecord(path, "card")
    assert record.wrong("kernels") is None
    record.keep("kernels", "bad \x1b[31m words " + "x" * 900)
    kept = record.wrong("kernels")
    assert kept is not None
    assert "\x1b" not in kept
    assert GpuRecord(None, "card").wrong("kernels") is None
    unwritable = GpuRecord(path / "below", "card")
    unwritable.keep("kernels", "wrong")
    assert unwritable.wrong("kernels") is None


def test_the_card_and_the_pair_of_longest_ago_are_dropped_first(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    for number in range(MAX_CARDS + 1):
        GpuRecord(path, f"card {number}").keep("kernels", "wrong")
    assert [GpuRecord(path, f"card {n}").wrong("kernels") for n in (0, 1, MAX_CARDS)] == [None, "wrong", "wrong"]
    record = GpuRecord(path, "card 1")
    record.keep("kernels", "")
    for number in range(MAX_PAIRS + 1):
        for _ in range(2):
            record.fail("transformers", "lost", f"p{number}")
    resting = [record.wrong("transformers", f"p{n}") for n in (0, 1, MAX_PAIRS)]
    assert resting == [None, "lost", "lost"]
    assert record.wrong("kernels") == "", "another way's results stay"


def test_transformers_itself_runs_a_pair_there(pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU of another maker, for which main memory stands."""
    found = Accelerator("xpu", "Intel Arc", None)
    for module in (placing, next_best, hf):
        monkeypatch.setattr(module, "find_accelerator", lambda: found)
    monkeypatch.setattr(hf, "kind", lambda: "cpu")
    monkeypatch.setattr(devices, "this_machine", machine(Machine("this torch is built without CUDA", 64 * GIB)))
    info = loaded(replace(pair, draft=pair.target)).info
    assert info.load.device == "transformers, cpu, float32"
    assert info.notes.warning == "Specchat's own kernels are for NVIDIA GPUs, so transformers runs p on Intel Arc."
    assert info.strategy("draft").available
