"""Where models run, on machines that are not here; and the sentences for those that cannot run as asked."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.errors import EngineError
from specchat.engine.formats import by_quant
from specchat.engine.hardware import free_memory as memory
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.gpu import Gpu
from specchat.engine.kernels.gpu_shapes import PROCESSORS
from specchat.engine.memory import devices, plan
from specchat.engine.memory.cut import cuts
from specchat.engine.memory.devices import Machine, Placement, longest_context, place, this_machine
from specchat.engine.memory.gpu_need import unsupported
from specchat.engine.memory.need import Model, Need, Place
from specchat.engine.memory.plan import GIB, GPU_RUNTIME, SPARE
from specchat.engine.protocol.pair import QUANTS, Device, ModelSource, PairSpec, Quant, Wanted
from specchat.engine.recipe import Layer, Norm, Rope
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from tests.engine.tiny import FAMILIES, checkpoint

BIG = Machine(Gpu("RTX 4090", 20 * GIB), 64 * GIB)
NO_GPU = Machine("no NVIDIA GPU is found", 64 * GIB)


def test_this_machine_is_described() -> None:
    pair = PairSpec("p", "P", ModelSource(path="/t", device="cpu"))
    machine = this_machine(pair)
    assert machine.gpu == "it was not asked for"
    assert machine.free == pytest.approx(free_memory(), rel=0.2)


def test_the_gpu_is_left_alone_by_pairs_that_do_not_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_gpu", lambda: Gpu("it was looked at", 1))
    cpu, auto = ModelSource(path="/t", device="cpu"), ModelSource(path="/t")
    assert this_machine(PairSpec("p", "P", cpu)).gpu == "it was not asked for"
    assert this_machine(PairSpec("p", "P", cpu, cpu)).gpu == "it was not asked for"
    assert isinstance(this_machine(PairSpec("p", "P", cpu, auto)).gpu, Gpu)
    assert isinstance(this_machine(PairSpec("p", "P", auto)).gpu, Gpu)


def test_free_memory_is_read_where_linux_tells_it(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   3000 kB\n")
    assert free_memory(meminfo) == 3000 * 1024


@pytest.mark.parametrize("error", [AttributeError, ValueError, OSError])
def test_free_memory_that_no_system_call_tells_is_not_known(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untold(_: str) -> int:
        raise error

    monkeypatch.setattr(memory.os, "sysconf", untold)
    assert free_memory(tmp_path / "nowhere") is None


@dataclass
class Tiny:
    """A pair of tiny checkpoints, placed with settings of its models."""

    target: Path
    draft: Path

    def place(
        self,
        machine: Machine,
        target: Device = "auto",
        draft: Device | None = None,
        quant: Quant | None = None,
        context: int = 256,
        draft_quant: Wanted | None = None,
    ) -> Placement:
        source = ModelSource(path=str(self.target), quant=quant, device=target)
        other = ModelSource(path=str(self.draft), device=draft, quant=draft_quant) if draft else None
        pair = PairSpec("tiny", "Tiny", source, other)
        opened = Checkpoint.open(self.draft) if other else None
        return place(pair, Checkpoint.open(self.target), opened, context, machine)

    def refusal(self, machine: Machine, **settings: object) -> EngineError:
        with pytest.raises(EngineError) as caught:
            self.place(machine, **settings)  # type: ignore[arg-type]
        assert "\n" not in caught.value.message
        return caught.value


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(
        checkpoint(tmp_path / "target"), checkpoint(tmp_path / "draft", num_hidden_layers=2, intermediate_size=128)
    )


@pytest.mark.parametrize(
    ("target", "draft", "places"),
    [
        ("auto", "auto", ("cuda", "cuda")),
        ("cuda", "auto", ("cuda", "cuda")),
        ("cpu", "auto", ("cpu", "cpu")),
        ("auto", "cpu", ("cuda", "cpu")),
        ("cpu", "cuda", ("cpu", "cuda")),
    ],
)
def test_a_draft_goes_where_the_target_is_unless_it_says_otherwise(
    target: Device, draft: Device, places: tuple[str, str], tiny: Tiny
) -> None:
    plan = tiny.place(BIG, target, draft).plan
    assert plan.draft is not None
    assert (plan.target.place, plan.draft.place) == places


def test_auto_is_the_cpu_without_a_gpu_and_says_why(tiny: Tiny) -> None:
    placement = tiny.place(NO_GPU, draft="auto")
    assert placement.plan.draft is not None
    assert (placement.plan.target.place, placement.plan.draft.place) == ("cpu", "cpu")
    assert placement.note == "no NVIDIA GPU is found"
    assert tiny.place(BIG).note == ""


def test_auto_is_the_cpu_where_the_gpu_is_too_full(tiny: Tiny) -> None:
    placement = tiny.place(Machine(Gpu("RTX 3060", 1000), 64 * GIB))
    assert placement.plan.target.place == "cpu"
    assert placement.note == "the pair does not fit the free memory of the GPU (RTX 3060)"


def test_a_draft_that_has_no_room_beside_its_target_goes_to_the_cpu_alone(tiny: Tiny) -> None:
    need = tiny.place(BIG, draft="auto", draft_quant="none").plan.need("cuda").total
    enough = Machine(Gpu("RTX 3060", int(need / (1 - SPARE)) + 1, note="amiss"), 64 * GIB)
    assert tiny.place(enough, draft="auto", draft_quant="none").note == "amiss"
    less = replace(enough, gpu=Gpu("RTX 3060", int(need / (1 - SPARE)) - 1, note="amiss"))
    placement = tiny.place(less, draft="auto", draft_quant="none")
    assert placement.plan.draft is not None
    assert (placement.plan.target.place, placement.plan.draft.place) == ("cuda", "cpu")
    words = "the draft has no room beside the target on the GPU (RTX 3060) and runs on the CPU; amiss"
    assert placement.note == words
    assert placement.otherwise is not None
    assert placement.otherwise.target.place == "cpu"


def test_what_fits_nowhere_is_refused_with_the_gpus_numbers(tiny: Tiny) -> None:
    error = tiny.refusal(Machine(Gpu("RTX 3060", 1000), 1000))
    assert error.kind == "memory"
    assert error.message.startswith("Tiny needs 0.3 GiB of GPU memory with context 256")


def test_a_note_on_the_gpu_goes_with_what_runs_there(tiny: Tiny) -> None:
    there = Machine(Gpu("RTX 4090", 20 * GIB, note="amiss"), 64 * GIB)
    assert (tiny.place(there).note, tiny.place(BIG).note) == ("amiss", "")


def test_the_draft_is_counted(tiny: Tiny) -> None:
    target = tiny.place(BIG).plan.need("cuda")
    full = Machine(Gpu("RTX 3060", int((target.total + 1000) / (1 - SPARE))), 0)
    assert tiny.place(full, "cuda").plan.target.place == "cuda"
    assert tiny.refusal(full, target="cuda", draft="auto").kind == "memory"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"hidden_size": 16, "head_dim": 1024, "num_attention_heads": 4},
            "attention heads of 1024 values: the GPU kernels take 512",
        ),
        (
            {"num_attention_heads": 32, "head_dim": 2, "num_key_value_heads": 1},
            "32 query heads a key head: the GPU kernels take 16",
        ),
    ],
)
def test_models_that_the_kernels_do_not_take_run_on_the_cpu(
    changes: dict[str, int], words: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "wide", **changes)
    wide = Tiny(folder, folder)
    placement = wide.place(BIG)
    assert placement.plan.target.place == "cpu"
    assert words in placement.note
    error = wide.refusal(BIG, target="cuda")
    assert error.kind == "config"
    assert words in error.message


def of_last(change: Callable[[Layer], Layer]) -> Callable[[ModelConfig], ModelConfig]:
    """A change of the last layer: one is enough for a reason."""

    def changed(config: ModelConfig) -> ModelConfig:
        *others, last = config.recipe.layers
        return replace(config, recipe=replace(config.recipe, layers=(*others, change(last))))

    return changed


def of_mixer(**changes: Any) -> Callable[[ModelConfig], ModelConfig]:
    return of_last(lambda layer: replace(layer, mixer=replace(layer.mixer, **changes)))


UNSUPPORTED: list[tuple[str, Callable[[ModelConfig], ModelConfig]]] = [
    (
        "hidden states of 8256 values",
        lambda c: replace(c, recipe=replace(c.recipe, embed=replace(c.recipe.embed, inputs=8256))),
    ),
    ("17 end-of-text tokens", lambda c: replace(c, eos=frozenset(range(17)))),
    (
        f"a matrix of {2**31 * 64} values",
        lambda c: replace(c, recipe=replace(c.recipe, head=replace(c.recipe.head, outputs=(2**31,)))),
    ),
    ("norms of heads of another size", of_mixer(query_norm=Norm("q", 32, 1e-6))),
    ("norms of heads of another size", of_mixer(key_norm=Norm("k", 8, 1e-6))),
    ("norms of heads of another size", of_mixer(value_norm=Norm("", 64, 1e-6))),
]


@pytest.mark.parametrize(("feature", "change"), UNSUPPORTED)
def test_what_the_kernels_do_not_take_is_told_by_its_feature(
    feature: str, change: Callable[[ModelConfig], ModelConfig], tiny: Tiny
) -> None:
    assert unsupported(change(Checkpoint.open(tiny.target).config)).startswith(f"{feature}: ")


@pytest.mark.parametrize(
    "change",
    [
        of_mixer(window=7),
        of_mixer(rope=None, scale=0.3),
        of_mixer(value_norm=Norm("", 16, 1e-6), temper=(0.1, 8.0)),
        of_last(lambda layer: replace(layer, scalar="s", feed=replace(layer.feed, activation="gelu_tanh"))),
        of_mixer(query_norm=Norm("q", 64, 1e-6), key_norm=Norm("k", 64, 1e-6)),
        of_mixer(query_norm=Norm("q", 64, 1e-6), key_norm=Norm("k", 16, 1e-5), value_norm=Norm("", 16, 1e-4)),
        of_mixer(query_norm=Norm("q", 16, 1e-6)),
        of_mixer(rope=Rope(1e4, "default", 8, {})),
        lambda c: replace(c, recipe=replace(c.recipe, embed_scale=3.0, logit_scale=0.5, cap=3.0)),
    ],
)
def test_what_the_kernels_take(change: Callable[[ModelConfig], ModelConfig], tiny: Tiny) -> None:
    assert not unsupported(change(Checkpoint.open(tiny.target).config))


@pytest.mark.parametrize("which", ["target", "draft"])
def test_a_gpu_that_is_asked_for_must_be_there(which: str, tiny: Tiny) -> None:
    settings = {"target": "cuda"} if which == "target" else {"target": "cpu", "draft": "cuda"}
    error = tiny.refusal(NO_GPU, **settings)
    assert error.kind == "config"
    assert f'{which} asks for device = "cuda": no NVIDIA GPU is found. Say device = "auto" or "cpu".' in error.message


def test_unknown_memory_is_taken_to_be_enough(tiny: Tiny) -> None:
    assert tiny.place(replace(NO_GPU, free=None)).plan.target.place == "cpu"


def test_inputs_of_any_number_can_be_quantised(tiny: Tiny) -> None:
    """One of the matrices has 112."""
    for quant in QUANTS:
        assert tiny.place(NO_GPU, quant=quant).plan.target.quant == quant


def test_quantising_needs_bitsandbytes(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda _: None)
    error = tiny.refusal(NO_GPU, quant="int8")
    assert error.kind == "model"
    assert 'quant = "int8" needs the package bitsandbytes, which is not installed' in error.message
    assert tiny.place(NO_GPU).plan.target.quant is None


def test_a_stored_quantisation_is_kept_and_planned_with(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    from tests.engine.bnb import bnb_checkpoint

    folder = bnb_checkpoint(tmp_path, "nf4")
    stored = Tiny(folder, folder)
    model = stored.place(NO_GPU).plan.target
    assert (model.quant, model.stored) == ("nf4", replace(by_quant("nf4"), nested=False))
    assert "quantised as nf4 already" in stored.refusal(NO_GPU, quant="int8").message


def test_the_context_is_the_targets_at_most(tiny: Tiny) -> None:
    assert tiny.place(BIG, context=8192).plan.context == 256
    assert tiny.place(BIG, context=100).plan.context == 100


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(None, ("int8", "int8")), ("none", (None, None)), ("nf4", ("nf4", "int8")), ("int8", ("int8",) * 2)],
)
def test_what_is_said_of_a_draft_decides(
    asked: Wanted | None, kept: tuple[Quant | None, Quant | None], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MIN_PARAMETERS", 1)
    draft = tiny.place(BIG, draft="auto", draft_quant=asked).plan.draft
    assert draft is not None
    assert (draft.quant, draft.head) == kept
    there = tiny.place(NO_GPU, draft="auto", draft_quant=asked).plan.draft
    assert there is not None
    assert (there.quant, there.head) == (None if asked in (None, "none") else asked, None)


def test_a_draft_stays_as_it_is_without_bitsandbytes(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_PARAMETERS", 1)
    monkeypatch.setattr(devices, "find_spec", lambda _: None)
    placement = tiny.place(BIG, draft="auto")
    assert placement.plan.draft is not None
    assert placement.plan.draft.quant is None


def test_a_draft_that_is_stored_quantised_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitsandbytes")
    from tests.engine.bnb import bnb_checkpoint

    monkeypatch.setattr(plan, "MIN_PARAMETERS", 1)
    folder = bnb_checkpoint(tmp_path, "nf4")
    draft = Tiny(folder, folder).place(BIG, draft="auto").plan.draft
    assert draft is not None
    assert (draft.quant, draft.head, draft.fixed) == ("nf4", None, True)


@pytest.mark.parametrize("machine", [BIG, NO_GPU])
def test_a_context_is_as_long_as_fits(machine: Machine, tmp_path: Path) -> None:
    """On the device of the default context, up to the model's own; half of main memory is left, a tenth of a GPU's."""
    pair = PairSpec("p", "P", ModelSource(path=str(tmp_path)), long_context=True)
    target = Checkpoint.open(checkpoint(tmp_path, max_position_embeddings=32768))
    assert longest_context(pair, target, None, machine) == 32768

    def needed(context: int) -> int:
        return place(pair, target, None, context, machine).plan.need(device).total

    device: Place = "cpu" if machine is NO_GPU else "cuda"
    free = int(needed(20_480) / (1 - SPARE) / (0.5 if device == "cpu" else 0.9)) + 1000
    small = replace(machine, free=free) if device == "cpu" else replace(machine, gpu=Gpu("RTX 3060", free))
    assert longest_context(pair, target, None, small) == 20_480
    least = int(needed(8192) / (1 - SPARE)) + 1000
    tight = replace(machine, free=least) if device == "cpu" else replace(machine, gpu=Gpu("RTX 3060", least))
    assert longest_context(pair, target, None, tight) == 8192
    with pytest.raises(EngineError, match="needs"):
        longest_context(pair, target, None, Machine("no GPU", 1000))


def two(first: int, second: int | str, free: int = 64 * GIB) -> Machine:
    """A machine whose GPUs have so many bytes free, or the reason why there is no second one."""
    other = second if isinstance(second, str) else Gpu("RTX 3050", second, 20, 1)
    return Machine(Gpu("RTX 3060", first), free, second=other)


def holding(need: int) -> int:
    """Free bytes that are just enough."""
    return int(need / (1 - SPARE)) + 1


@pytest.mark.parametrize("target", ["auto", "cuda"])
def test_a_draft_without_room_beside_its_target_goes_to_a_second_gpu(target: Device, tiny: Tiny) -> None:
    """Each GPU's memory counts by itself."""
    both = tiny.place(BIG, target, "auto", draft_quant="none").plan
    apart = tiny.place(two(20 * GIB, 20 * GIB), target, "second-gpu", draft_quant="none").plan
    alone, drafts = apart.need("cuda").total, apart.need("second-gpu").total
    assert apart.need("cuda") == tiny.place(BIG, target).plan.need("cuda")
    assert apart.others == 20
    roomy = tiny.place(two(holding(both.need("cuda").total), 20 * GIB), target, "auto", draft_quant="none")
    assert (roomy.plan.places, roomy.note) == (("cuda", "cuda"), "")
    placement = tiny.place(two(holding(alone), holding(drafts), 0), target, "auto", draft_quant="none")
    assert placement.plan == apart
    words = "the draft has no room beside the target on the GPU (RTX 3060) and runs on a second one (RTX 3050)"
    assert placement.note == words
    if target == "auto":
        full = tiny.place(two(holding(alone), holding(drafts) - 1000), target, "auto", draft_quant="none")
        assert (full.plan.places, full.note[-19:]) == (("cuda", "cpu"), "and runs on the CPU")
        none = tiny.place(two(holding(alone), "there is none"), target, "auto", draft_quant="none")
        assert none.plan.places == ("cuda", "cpu")


def test_a_plan_tells_what_it_leaves_of_a_gpu(tiny: Tiny) -> None:
    """The caches of replies in company are made of that."""
    plan = tiny.place(BIG, "cuda").plan
    need = plan.need("cuda").total + GPU_RUNTIME  # their graphs
    assert [plan.leaving(free).left for free in (None, 0, need, holding(need + 1000))] == [0, 0, 0, 1000]


def test_a_second_gpu_is_named_and_must_be_there_and_have_room(tiny: Tiny) -> None:
    placement = tiny.place(two(20 * GIB, 20 * GIB), draft="second-gpu")
    assert (placement.plan.places, placement.note, placement.otherwise) == (("cuda", "second-gpu"), "", None)
    missing = tiny.refusal(two(20 * GIB, "there is no second GPU"), draft="second-gpu")
    assert missing.kind == "config"
    assert missing.message.endswith(
        'draft asks for device = "second-gpu": there is no second GPU. Say device = "auto" or "cpu".'
    )
    assert "no NVIDIA GPU is found" in tiny.refusal(NO_GPU, draft="second-gpu").message
    small = tiny.refusal(two(20 * GIB, 1000), draft="second-gpu")
    assert small.kind == "memory"
    assert small.message.startswith("Tiny needs 0.3 GiB of the second GPU's memory with context 256")
    of_target = tiny.refusal(two(20 * GIB, 20 * GIB), target="second-gpu")
    assert 'target asks for device = "second-gpu": that is of drafts' in of_target.message


def test_each_gpu_counts_with_its_own_multiprocessors(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = tiny.place(two(20 * GIB, 20 * GIB), draft="second-gpu").plan, list[tuple[str, int]]()

    def needed(model: Model, _: int, processors: int) -> Need:
        asked.append((model.place, processors))
        return Need(0, 0, 0)

    monkeypatch.setattr(plan, "need", needed)
    made.need("cuda")
    made.need("second-gpu")
    assert asked == [("cuda", PROCESSORS), ("second-gpu", 20)]


def test_a_target_that_one_gpu_has_no_room_for_lies_on_two(tmp_path: Path) -> None:
    """By itself, with as few layers on the second one as the first needs, the draft with the head; else on the CPU."""
    target = checkpoint(tmp_path / "target", num_hidden_layers=12, intermediate_size=256)
    pair = Tiny(target, checkpoint(tmp_path / "draft", num_hidden_layers=1, intermediate_size=64))

    def placed(first: int, second: int | str, target: Device = "auto") -> Placement:
        return pair.place(two(first, second), target, "auto", draft_quant="none")

    both = placed(20 * GIB, 20 * GIB, "both-gpus")
    assert (both.plan.target.first, both.plan.places) == (1, ("second-gpu", "cuda", "cuda"))
    assert (both.note, both.otherwise) == ("", None)
    alone = holding(pair.place(BIG).plan.need("cuda").total)
    assert pair.place(two(alone, 20 * GIB)).plan.target.first == 0
    found = placed(alone - 1000, 20 * GIB)
    first, second = (found.plan.need(place).total for place in ("cuda", "second-gpu"))
    assert found.plan.target.first > 1, "the draft takes its room too"
    assert found.plan.places == ("second-gpu", "cuda", "cuda")
    assert found.note == "the target does not fit the GPU (RTX 3060), and has layers on a second one too"
    assert found.otherwise is not None
    assert found.otherwise.places == ("cpu", "cpu")
    assert placed(holding(first), holding(second)).plan == found.plan
    assert placed(holding(first) - 1000, 20 * GIB).plan.target.first == found.plan.target.first + 1
    for small in ((holding(first), holding(second) - 1000), (1000, 20 * GIB), (holding(first), "there is none")):
        assert placed(*small).plan.target.first == 0


def test_a_draft_beside_a_cut_target_has_the_bits_that_both_gpus_have_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer only where the pair fits both in no other way."""
    monkeypatch.setattr(plan, "MIN_PARAMETERS", 1)
    small = checkpoint(tmp_path / "draft", num_hidden_layers=2, intermediate_size=512)
    pair = Tiny(checkpoint(tmp_path / "target", num_hidden_layers=12, intermediate_size=256), small)

    def placed(first: int, second: int, target: Device = "auto") -> tuple[int, Quant | None]:
        made = pair.place(two(first, second), target, "auto").plan
        assert made.draft is not None
        return made.target.first, made.draft.quant

    four = pair.place(two(20 * GIB, 20 * GIB), "both-gpus", "auto", draft_quant="nf4").plan
    first = holding(four.on("cuda").need("cuda").total)
    assert placed(first, 20 * GIB, "cuda") == (0, "nf4")
    assert placed(first, 20 * GIB, "both-gpus") == (2, "int8")
    least = replace(four, target=replace(four.target, first=11))
    assert placed(*(holding(least.need(place).total) for place in ("cuda", "second-gpu"))) == (11, "nf4")


def test_two_gpus_that_are_too_small_together_are_told_with_what_would_fit(tmp_path: Path) -> None:
    long, main = Tiny(checkpoint(tmp_path, max_position_embeddings=32768), tmp_path), 1 << 20
    both = long.place(two(20 * GIB, 20 * GIB), "both-gpus", context=4096).plan
    full = two(*(holding(both.need(place).total) for place in ("cuda", "second-gpu")), main)
    devices: tuple[Device, ...] = ("auto", "both-gpus")
    for asked in devices:
        error = long.refusal(full, target=asked, context=32768)
        assert error.kind == "memory"
        assert "It fits with context = 4096" in error.message
        assert long.place(full, asked, context=4096).plan.target.first == 1


def test_layers_on_both_gpus_are_of_targets_that_have_them(tmp_path: Path, tiny: Tiny) -> None:
    missing = tiny.refusal(two(20 * GIB, "there is no second GPU"), target="both-gpus")
    assert missing.message.endswith(
        'target asks for device = "both-gpus": there is no second GPU. Say device = "auto" or "cpu".'
    )
    assert "no NVIDIA GPU is found" in tiny.refusal(NO_GPU, target="both-gpus").message
    of_draft = tiny.refusal(two(20 * GIB, 20 * GIB), draft="both-gpus").message
    assert 'draft asks for device = "both-gpus": layers of a target alone lie on both.' in of_draft
    folder = checkpoint(tmp_path / "inputs", **FAMILIES["gemma4_e"])
    inputs, machine = Tiny(folder, folder), two(20 * GIB, 20 * GIB)
    assert "take inputs by token beside the hidden states" in inputs.refusal(machine, target="both-gpus").message
    least = inputs.place(machine).plan.need("cuda").total
    assert inputs.place(two(least // 2, 20 * GIB)).plan.target.place == "cpu"


def test_layers_stay_with_those_whose_entries_they_share(tmp_path: Path) -> None:
    config = Checkpoint.open(checkpoint(tmp_path, num_hidden_layers=6)).config
    assert cuts(config.recipe) == [1, 2, 3, 4, 5]
    *others, last = config.recipe.layers
    sharing = replace(config.recipe, layers=(*others, replace(last, mixer=replace(last.mixer, share=3))))
    assert cuts(sharing) == [1, 2, 3]
    front, rest = replace(config, recipe=sharing).halves(2)
    assert [layer.share for layer in (*front.recipe.layers, *rest.recipe.layers)] == [None] * 5 + [1]


def test_experts_are_on_two_gpus_before_they_are_in_main_memory(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, **FAMILIES["qwen3_moe"])
    mixture, whole = Tiny(folder, folder), Tiny(folder, folder).place(BIG).plan.need("cuda").total
    tight = holding(whole) - 1000
    assert mixture.place(two(tight, "none")).plan.target.experts_in_main > 0
    found = mixture.place(two(tight, 20 * GIB)).plan.target
    assert (found.experts_in_main, found.first) == (0, 1)
    insisting = mixture.place(two(tight, 20 * GIB), "cuda").plan.target
    assert (insisting.experts_in_main > 0, insisting.first) == (True, 0)
    drafted = Tiny(folder, checkpoint(tmp_path / "draft", num_hidden_layers=1, intermediate_size=64))
    beside = drafted.place(BIG, "auto", "auto", draft_quant="none").plan.need("cuda").total
    kept = drafted.place(two(holding(beside) - 1000, 20 * GIB), "auto", "auto", draft_quant="none").plan
    assert (kept.places, kept.target.experts_in_main) == (("cuda", "second-gpu"), 0)


@pytest.mark.parametrize(
    ("target", "draft", "asked"),
    [
        ("cuda", None, False),
        ("cuda", "cpu", False),
        ("cuda", "cuda", False),
        ("cuda", "auto", True),
        ("cuda", "second-gpu", True),
        ("auto", None, True),
        ("both-gpus", None, True),
    ],
)
def test_a_second_gpu_is_left_alone_unless_something_may_go_there(
    target: Device, draft: Device | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "find_gpu", lambda: Gpu("the first", 1))
    monkeypatch.setattr(devices, "find_second", lambda: Gpu("the second", 1, index=1))
    source = ModelSource(path="/d", device=draft) if draft else None
    machine = this_machine(PairSpec("p", "P", ModelSource(path="/t", device=target), source))
    assert isinstance(machine.second, Gpu) == asked


def test_a_context_is_no_longer_than_keeps_a_draft_where_it_is(tmp_path: Path) -> None:
    """With the default context both are on one GPU, though a second one would hold the draft of a longer one."""
    folder = checkpoint(tmp_path, max_position_embeddings=32768)
    opened = Checkpoint.open(folder)
    pair = PairSpec("p", "P", ModelSource(path=str(folder)), ModelSource(path=str(folder)), long_context=True)

    def needed(context: int) -> int:
        return place(pair, opened, opened, context, BIG).plan.need("cuda").total

    free = int(needed(20_480) / (1 - SPARE) / 0.9) + 1000
    assert longest_context(pair, opened, opened, two(free, 20 * GIB)) == 20_480
