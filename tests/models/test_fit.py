"""What fits, what could draft, and the order in which it is offered."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.bench.published import narrowed
from specchat.config.catalog import Catalog, Pair, Requires
from specchat.engine.cpu import compiled as compiled_module
from specchat.engine.fetch.source import Hub
from specchat.engine.formats.mxfp4 import Mxfp4
from specchat.engine.hardware.gpu_counters import ASSUMED_BUS, Installed
from specchat.engine.memory.need import Model, quantised
from specchat.engine.memory.plan import plan
from specchat.engine.protocol.pair import ModelSource, PairSpec, Quant
from specchat.installing import install_command
from specchat.models import machine as machine_module
from specchat.models import words
from specchat.models.about import About, about_folder, about_gguf
from specchat.models.check import checked_pair
from specchat.models.drafts import OTHER_TOKENS, cost, drafts_for, lack
from specchat.models.fit import fit
from specchat.models.heads import look as look_for_heads
from specchat.models.library import FoundModel, Library, ModelPlaces, look
from specchat.models.machine import FreeMemory, this_machine
from specchat.models.offers import Offer, offers
from tests.engine.published_heads import eagle3, medusa, mtp
from tests.engine.tiny import FAMILIES, SPECIAL, checkpoint
from tests.fake_nvml import FakeNvml
from tests.models.made import gguf

GIB = 1 << 30
ROOMY = FreeMemory(None, 64 * GIB)


def pair(folder: Path, draft: Path | None = None, **changes: object) -> Pair:
    source = ModelSource(path=str(draft)) if draft else None
    return replace(Pair(PairSpec("p", "P", ModelSource(path=str(folder)), source)), **changes)  # type: ignore[arg-type]


@pytest.fixture
def tiny(tmp_path: Path) -> About:
    return about_folder(checkpoint(tmp_path / "tiny"), "tiny")


def test_the_planner_says_where_a_pair_fits(tiny: About) -> None:
    chosen = pair(tiny.place)
    assert fit(chosen, tiny, None, ROOMY).verdict == "CPU"
    assert fit(chosen, tiny, None, ROOMY).words.endswith(" GiB of memory, and the program itself 0.8")
    assert fit(chosen, tiny, None, FreeMemory(16 * GIB, 64 * GIB)).verdict == "GPU"
    assert fit(chosen, tiny, None, FreeMemory(1 << 20, 64 * GIB)).verdict == "CPU"
    small = fit(chosen, tiny, None, FreeMemory(None, 1 << 20))
    assert small.verdict == "no"
    assert "No setting makes it fit" in small.words
    assert fit(chosen, tiny, None, FreeMemory(None, None)).verdict == "CPU"


def test_a_draft_may_go_to_a_second_gpu(tiny: About) -> None:
    """By itself where the first one has no room for both, or because it asks for it."""
    chosen, config = pair(tiny.place, tiny.place), tiny.config
    assert config is not None
    there = plan(Model(config, "cuda"), Model(config, "cuda"), 8192)
    first, second = (int(there.apart().need(place).total / 0.95) + 1 for place in ("cuda", "second-gpu"))
    machine = FreeMemory(first, 64 * GIB, second=second)
    found = fit(chosen, tiny, tiny, machine)
    assert found.verdict == "GPU"
    assert found.words.endswith(" of a second GPU's")
    assert fit(chosen, tiny, tiny, replace(machine, second=1000)).verdict == "CPU"
    roomy = replace(machine, gpu=16 * GIB)
    assert "second" not in fit(chosen, tiny, tiny, roomy).words
    assert chosen.spec.draft is not None
    asking = replace(chosen, spec=replace(chosen.spec, draft=replace(chosen.spec.draft, device="second-gpu")))
    assert "second" in fit(asking, tiny, tiny, roomy).words
    missing = fit(asking, tiny, tiny, replace(roomy, second=0))
    assert (missing.verdict, "there is no second GPU" in missing.words) == ("no", True)


def test_layers_may_go_to_a_second_gpu(tiny: About) -> None:
    """By themselves where the first one has no room for the target, or because the pair asks for it."""
    chosen, config = pair(tiny.place), tiny.config
    assert config is not None
    there = plan(Model(config, "cuda", first=1), None, 8192)
    first, second = (int(there.need(place).total / 0.95) + 1 for place in ("cuda", "second-gpu"))
    machine = FreeMemory(first, 64 * GIB, second=second)
    found = fit(chosen, tiny, None, machine)
    assert (found.verdict, found.second, found.words.endswith(" of a second GPU's")) == ("GPU", True, True)
    assert fit(chosen, tiny, None, replace(machine, second=1000)).verdict == "CPU"
    roomy = replace(machine, gpu=16 * GIB)
    assert "second" not in fit(chosen, tiny, None, roomy).words
    assert not fit(chosen, tiny, None, roomy).second
    asking = replace(chosen, spec=replace(chosen.spec, target=replace(chosen.spec.target, device="both-gpus")))
    assert "second" in fit(asking, tiny, None, roomy).words
    missing = fit(asking, tiny, None, replace(roomy, second=0))
    assert (missing.verdict, "there is no second GPU" in missing.words) == ("no", True)
    assert fit(asking, tiny, None, replace(machine, second=1000)).verdict == "no"
    others = replace(asking, spec=replace(asking.spec, backend="gguf"))
    assert fit(others, tiny, None, roomy).words.startswith('device = "both-gpus" is of specchat\'s own decoder')


def test_a_draft_beside_a_cut_target_counts_in_the_bits_that_it_will_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big, small = (
        about_folder(checkpoint(tmp_path / str(layers), num_hidden_layers=layers), "tiny") for layers in (12, 1)
    )
    monkeypatch.setattr("specchat.engine.memory.plan.MIN_PARAMETERS", 1)
    assert big.config is not None
    assert small.config is not None
    there = plan(Model(big.config, "cuda", first=6), quantised(Model(small.config, "cuda"), "int8"), 8192)
    first, second = (int(there.need(place).total / 0.95) + 1 for place in ("cuda", "second-gpu"))
    found = fit(pair(big.place, small.place), big, small, FreeMemory(first, 64 * GIB, second=second))
    assert (found.verdict, found.words.endswith(" of a second GPU's")) == ("GPU", True)


@pytest.mark.parametrize(
    ("asked", "missing", "has"),
    [
        ("nf4", (), "nf4"),
        ("int8", (), "int8"),
        ("none", (), None),
        (None, (), "int8"),
        (None, ("bitsandbytes",), None),
    ],
)
def test_a_draft_counts_in_the_bits_that_loading_gives_it(
    tiny: About,
    monkeypatch: pytest.MonkeyPatch,
    asked: Quant | Literal["none"] | None,
    missing: tuple[str, ...],
    has: Quant | None,
) -> None:
    monkeypatch.setattr("specchat.engine.memory.plan.MIN_PARAMETERS", 1)
    assert tiny.config is not None
    on_gpu = Model(tiny.config, "cuda")
    there = plan(on_gpu, quantised(on_gpu, has) if has else on_gpu, 8192).need("cuda").total
    spec = PairSpec("p", "P", ModelSource(path=str(tiny.place)), ModelSource(path=str(tiny.place), quant=asked))
    machine = FreeMemory(16 * GIB, 64 * GIB, missing=frozenset(missing))
    assert fit(Pair(spec), tiny, tiny, machine).takes == there


@pytest.mark.parametrize(
    ("count", "said"), [(0, ""), (260_032, "260 k"), (134_515_008, "135 M"), (8_190_735_360, "8.2 B")]
)
def test_weights_are_counted_in_a_unit_of_their_size(count: int, said: str) -> None:
    assert words.weights(count) == said


def test_a_list_says_in_three_words_what_a_pair_needs() -> None:
    chosen = Pair(PairSpec("p", "P", ModelSource(repo="made/up")), requires=Requires(ram_gib=16))
    offer = offers(Catalog((chosen,), "p"), Library((), ()), FreeMemory(None, 8 * GIB))[0]
    assert offer.fit.words == "needs 16 GiB, and 7.6 of the 8.0 GiB that are free can be used"
    assert words.fits(offer) == "needs 16 GiB"


def test_heads_count_where_a_pair_fits(tiny: About, tmp_path: Path) -> None:
    folders = {"eagle3": eagle3(tmp_path / "eagle3"), "medusa": medusa(tmp_path / "medusa")}
    sources = {head: ModelSource(path=str(folder)) for head, folder in folders.items()}
    spec = PairSpec("p", "P", ModelSource(path=str(tiny.place)), heads=sources)  # type: ignore[arg-type]

    def offered(machine: FreeMemory, **changes: object) -> Offer:
        return offers(Catalog((Pair(replace(spec, **changes)),), "p"), Library((), ()), machine)[0]  # type: ignore[arg-type]

    roomy = offered(ROOMY)
    assert {"eagle3", "eagle3-tree", "medusa"} <= set(roomy.strategies)
    assert "eagle" not in roomy.strategies
    assert roomy.size == tiny.size + sum(
        sum(f.stat().st_size for f in d.glob("*.safetensors")) for d in folders.values()
    )
    assert tiny.config is not None
    bare = plan(Model(tiny.config, "cpu"), None, 8192).need("cpu").total
    heads = look_for_heads(spec, tiny, lambda source: about_folder(Path(source.path or ""), "h"))
    needs, there = (heads.needs(tiny.config, 8192, place) for place in ("cpu", "cuda"))
    medusa_alone = offered(FreeMemory(None, int((bare + needs["medusa"]) / 0.95) + 1000))
    assert needs["medusa"] < needs["eagle3"]
    assert medusa_alone.fit.verdict == "CPU"
    assert medusa_alone.fit.words.endswith("; without eagle3 heads, which do not fit beside it")
    assert "medusa" in medusa_alone.strategies
    assert {"eagle3", "eagle3-tree"}.isdisjoint(medusa_alone.strategies)
    on_gpu = offered(FreeMemory(16 * GIB, 64 * GIB))
    assert (on_gpu.fit.verdict, set(on_gpu.strategies) & {"eagle3", "medusa"}) == ("GPU", {"eagle3", "medusa"})
    bare_there = plan(Model(tiny.config, "cuda"), None, 8192).need("cuda").total
    assert there["medusa"] < there["eagle3"]
    small_gpu = offered(FreeMemory(int((bare_there + there["medusa"]) / 0.95) + 1000, 64 * GIB))
    assert small_gpu.fit.verdict == "GPU"
    assert small_gpu.fit.words.endswith("; without eagle3 heads, which do not fit beside it")
    assert set(small_gpu.strategies) & {"eagle3", "medusa"} == {"medusa"}


def test_a_layer_that_the_target_brings_along_counts_without_being_named(tmp_path: Path) -> None:
    target = about_folder(mtp(tmp_path / "mimo"), "mimo")
    assert target.config is not None
    chosen = pair(target.place)
    needs = look_for_heads(chosen.spec, target, lambda _: None).needs(target.config, 8192, "cpu")
    bare = plan(Model(target.config, "cpu"), None, 8192).need("cpu").total

    def offered(machine: FreeMemory) -> Offer:
        return offers(Catalog((chosen,), "p"), Library((), ()), machine)[0]

    roomy, tight = offered(ROOMY), offered(FreeMemory(None, int((bare + needs["mtp"] / 2) / 0.95)))
    assert (roomy.size, "mtp" in roomy.strategies) == (target.size, True)
    assert "mtp" not in tight.strategies
    assert tight.fit.words.endswith("; without mtp heads, which do not fit beside it")
    assert "mtp" in offered(FreeMemory(16 * GIB, 64 * GIB)).strategies  # on the GPU
    (settings := tmp_path / "mimo" / "config.json").write_text(settings.read_text().replace("num_nextn", "no"))
    assert "mtp" not in offered(ROOMY).strategies


def test_heads_that_are_not_here_are_to_be_fetched_and_damaged_ones_stop_nothing(tiny: About, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    far, broken = ModelSource(repo="someone/heads"), ModelSource(path=str(tmp_path / "broken"))
    spec = PairSpec("p", "P", ModelSource(path=str(tiny.place)), heads={"eagle3": far, "medusa": broken})
    offer = offers(Catalog((Pair(spec),), "p"), Library((), ()), ROOMY)[0]
    assert (offer.missing, offer.fit.verdict, "eagle3" in offer.strategies) == ((far,), "CPU", True)


def test_what_is_compiled_needs_less(tiny: About, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiny.config is not None
    large = replace(tiny, config=narrowed(tiny.config, vocab=4_000_000))
    chosen = pair(tiny.place)
    plain, compiled = (
        fit(chosen, large, None, FreeMemory(None, 64 * GIB, threads=threads)).words.split()[1] for threads in (0, 1)
    )
    assert float(compiled) < float(plain)
    assert this_machine({}).threads > 0
    monkeypatch.setattr(compiled_module, "find_spec", lambda _: None)
    assert this_machine({}).threads == 0


def test_a_device_that_is_asked_for_is_heeded(tiny: About) -> None:
    both = FreeMemory(16 * GIB, 64 * GIB)
    spec = pair(tiny.place).spec
    for device, verdict in (("cpu", "CPU"), ("cuda", "GPU")):
        placed = Pair(replace(spec, target=replace(spec.target, device=device)))  # type: ignore[arg-type]
        assert fit(placed, tiny, None, both).verdict == verdict
    assert fit(placed, tiny, None, ROOMY).verdict == "no"


def test_a_pair_that_is_not_here_goes_by_what_it_states() -> None:
    spec = PairSpec("p", "P", ModelSource(repo="a/b"))
    stated = Pair(spec, requires=Requires(vram_gib=8.0, ram_gib=12.0))
    assert fit(stated, None, None, FreeMemory(10 * GIB, 4 * GIB)).verdict == "GPU"
    assert fit(stated, None, None, FreeMemory(8 * GIB, 16 * GIB)).verdict == "CPU"
    assert fit(stated, None, None, FreeMemory(4 * GIB, 4 * GIB)).verdict == "no"
    assert fit(Pair(spec), None, None, ROOMY).verdict == "?"


def test_experts_that_the_gpu_has_no_room_for_lie_in_main_memory() -> None:
    """A pair that is not here goes by what it states of them."""
    spec = PairSpec("p", "P", ModelSource(repo="a/b"))
    stated = Pair(spec, requires=Requires(vram_gib=17.2, experts_gib=13.5, ram_gib=19.2))
    small = fit(stated, None, None, FreeMemory(8 * GIB, 16 * GIB))
    assert (small.verdict, small.spills) == ("GPU", True)
    assert small.words == "needs 17.2 GiB of GPU memory, by its shape; 9.6 of experts lie in main memory"
    whole = fit(stated, None, None, FreeMemory(20 * GIB, 16 * GIB))
    assert (whole.verdict, whole.spills) == ("GPU", False)
    assert fit(stated, None, None, FreeMemory(3 * GIB, 64 * GIB)).verdict == "CPU", "the rest does not fit"
    assert fit(stated, None, None, FreeMemory(8 * GIB, 8 * GIB)).verdict == "no"
    assert fit(stated, None, None, FreeMemory(None, 16 * GIB)).verdict == "no"


def test_the_price_of_experts_in_main_memory_is_told(tmp_path: Path) -> None:
    about = about_folder(checkpoint(tmp_path / "sparse", **FAMILIES["qwen3_moe"]), "sparse")
    assert about.config is not None

    def needed(layers: int) -> int:
        target = Model(about.config, "cuda", experts_in_main=layers)  # type: ignore[arg-type]
        return int(plan(target, None, about.context).need("cuda").total / 0.95) + 1

    found = [fit(pair(about.place), about, None, FreeMemory(needed(layers), GIB, bus=12e9)) for layers in (0, 2)]
    assert [one.verdict for one in found] == ["GPU", "GPU"]
    assert [one.spills for one in found] == [False, True]
    assert "Experts of 2 of 3 layers lie in main memory: about 0.0 ms a token" in found[1].words
    assert "at 12 GB/s" in found[1].words


def test_a_pair_is_quantised_before_experts_leave_the_gpu(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "sparse", **FAMILIES["qwen3_moe"])
    config, source = about_folder(folder, "sparse").config, ModelSource(path=str(folder))
    assert config is not None
    enough = int(plan(Model(config, "cuda"), None, config.context).need("cuda").total / 0.95) + 1

    def quant(gpu: int) -> str | None:
        made, _ = checked_pair(Hub("http://127.0.0.1:1", tmp_path), source, None, "p", FreeMemory(gpu, GIB))
        return made.spec.target.quant

    assert (quant(enough), quant(enough - 2000)) == (None, "nf4")


def test_experts_in_mxfp4_count_as_they_are_stored(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "oss", **FAMILIES["gpt_oss"])
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"quantization_config": {"quant_method": "mxfp4"}}))
    blocks = {"model.layers.0.mlp.experts.down_proj_blocks": torch.zeros(1, dtype=torch.uint8)}
    save_file(load_file(folder / "model.safetensors") | blocks, folder / "model.safetensors")
    about = about_folder(folder, "oss")
    assert about.config is not None
    packed = Model(about.config, "cuda", half=True, stored=Mxfp4())
    enough = int(plan(packed, None, about.context).need("cuda").total / 0.95) + 1
    found = fit(pair(folder), about, None, FreeMemory(enough, GIB))
    assert (found.verdict, found.spills) == ("GPU", False)
    assert fit(pair(folder), about, None, FreeMemory(enough - 2000, GIB)).spills


def test_what_cannot_be_run_does_not_fit(tiny: About) -> None:
    refused = fit(pair(tiny.place), replace(tiny, config=None, why_not="it is another kind"), None, ROOMY)
    assert (refused.verdict, refused.words) == ("no", "it is another kind")
    assert fit(pair(tiny.place, unsupported="not yet"), tiny, None, ROOMY).words == "not yet"


def test_gguf_files_go_by_their_size(tmp_path: Path) -> None:
    about = about_gguf(gguf(tmp_path / "m.gguf"))
    assert fit(pair(about.place), about, None, ROOMY).verdict == "CPU"
    large = fit(pair(about.place), replace(about, size=80 * GIB), None, FreeMemory(None, 64 * GIB))
    assert large.verdict == "no"
    assert large.words.endswith("by the size of its file, and 60.8 of the 64.0 GiB that are free can be used")


def test_a_speed_is_expected_of_what_memory_gives_and_none_where_caches_hold_the_model(tmp_path: Path) -> None:
    about = replace(about_gguf(gguf(tmp_path / "m.gguf")), size=4 * GIB)
    machine = FreeMemory(None, 64 * GIB, rates={"cpu": 20.0 * GIB})
    expected = fit(pair(about.place), about, None, machine).speed
    assert expected is not None
    assert (expected.plain, expected.drafted) == (5.0, None)
    assert fit(pair(about.place), replace(about, size=1000), None, machine).speed is None
    assert fit(pair(about.place), about, None, ROOMY).speed is None


def test_llama_cpps_gpu_is_its_own(tmp_path: Path) -> None:
    about = about_gguf(gguf(tmp_path / "m.gguf"))
    spec = PairSpec("p", "P", ModelSource(repo="a/b", file="m.gguf"), backend="gguf")
    stated = Pair(spec, requires=Requires(vram_gib=8.0, ram_gib=8.0))
    ours, llamas = FreeMemory(64 * GIB, 64 * GIB), FreeMemory(None, 64 * GIB, llama_gpu=64 * GIB)
    assert [fit(stated, None, None, machine).verdict for machine in (ours, llamas)] == ["CPU", "GPU"]
    assert [fit(stated, about, None, machine).verdict for machine in (ours, llamas)] == ["CPU", "GPU"]


@pytest.mark.parametrize(
    ("backend", "quant", "missing", "words"),
    [
        ("gguf", None, ["llama_cpp", "accelerate", "bitsandbytes"], ""),
        ("hf", "nf4", ["accelerate"], f"needs accelerate for its quant: {install_command('accelerate')}"),
        (
            "hf",
            "nf4",
            ["accelerate", "bitsandbytes"],
            f"needs accelerate and bitsandbytes for its quant: {install_command('accelerate', 'bitsandbytes')}",
        ),
        ("hf", None, ["accelerate"], ""),
        ("native", "nf4", ["accelerate"], ""),
        ("native", "nf4", ["bitsandbytes"], f"needs bitsandbytes for its quant: {install_command('bitsandbytes')}"),
    ],
)
def test_a_pair_whose_package_is_missing_does_not_fit(
    backend: str, quant: Quant | None, missing: list[str], words: str
) -> None:
    source = ModelSource(repo="a/b", quant=quant, file="m.gguf" if backend == "gguf" else None)
    stated = Pair(PairSpec("p", "P", source, backend=backend), requires=Requires(ram_gib=1.0))
    verdict = fit(stated, None, None, replace(ROOMY, missing=frozenset(missing)))
    assert (verdict.verdict, verdict.words) == (("no", words) if words else ("CPU", verdict.words))


def test_without_llama_cpp_its_pairs_are_ours_unless_the_decoder_does_not_run_them(tmp_path: Path) -> None:
    bare = replace(ROOMY, missing=frozenset({"llama_cpp"}))
    foreign = about_gguf(gguf(tmp_path / "m.gguf", general__architecture="rwkv"))
    ours = replace(foreign, foreign="")
    stated = pair(foreign.place)
    stated = replace(stated, spec=replace(stated.spec, backend="gguf"))
    assert fit(stated, ours, None, bare).backend == "native"
    assert fit(stated, ours, None, ROOMY).backend == "gguf"
    refused = fit(stated, foreign, None, bare)
    assert (refused.verdict, refused.backend) == ("no", "gguf")
    assert refused.words == f"needs llama-cpp-python: {install_command('specchat[gguf]')}"
    assert fit(stated, foreign, None, ROOMY).verdict == "CPU"


def test_what_transformers_runs_is_smaller_where_it_is_quantised(tiny: About) -> None:
    foreign = replace(tiny, config=None, foreign="it is another kind", quant="bfloat16", half=True, size=16 * GIB)
    source = ModelSource(path=str(tiny.place))
    whole = Pair(PairSpec("p", "P", source, backend="hf"))
    small = Pair(replace(whole.spec, target=replace(source, quant="nf4")))
    card = FreeMemory(8 * GIB, 20 * GIB)
    assert [fit(each, foreign, None, card).verdict for each in (whole, small)] == ["no", "GPU"]
    assert fit(small, foreign, None, replace(card, gpu=None)).verdict == "CPU"


@pytest.mark.parametrize(
    ("capability", "torch", "environ", "gpu"),
    [
        ((8, 6), "2.13.0+cu130", {}, 3 * GIB),
        ((7, 5), "2.13.0+cu130", {}, None),
        ((8, 6), "2.13.0+cpu", {}, None),
        ((8, 6), "2.13.0+cu130", {"CUDA_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_the_gpu_counts_where_it_can_be_used(
    capability: tuple[int, int], torch: str, environ: dict[str, str], gpu: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeNvml(monkeypatch).capability = capability
    monkeypatch.setattr(machine_module, "version", lambda _: torch)
    monkeypatch.setattr(machine_module, "find_spec", lambda _: object())
    machine = this_machine(environ)
    assert (machine.gpu, machine.llama_gpu, machine.missing) == (gpu, None, frozenset())
    assert machine.bus == (pytest.approx(12.6e9, rel=0.01) if gpu else ASSUMED_BUS)


def test_a_second_gpu_is_the_next_roomiest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [((8, 6), GIB), ((8, 6), 3 * GIB), ((7, 5), 9 * GIB)]
    found = tuple(Installed("card", capability, free, 9 * GIB) for capability, free in cards)
    monkeypatch.setattr(machine_module, "version", lambda _: "2.13.0+cu130")
    monkeypatch.setattr(machine_module, "find_spec", lambda _: object())
    for count, second in ((3, GIB), (1, 0)):
        monkeypatch.setattr(machine_module, "installed", lambda count=count: found[:count])
        machine = this_machine({})
        assert (machine.gpu, machine.second) == (3 * GIB if count > 1 else GIB, second)


def test_a_llama_cpp_that_is_built_for_gpus_is_known_by_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeNvml(monkeypatch).capability = (7, 5)
    package = tmp_path / "llama_cpp" / "__init__.py"
    (package.parent / "lib").mkdir(parents=True)
    package.write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(machine_module, "version", lambda _: "2.13.0+cpu")
    assert this_machine({}).llama_gpu is None
    (package.parent / "lib" / "libggml-cuda.so").touch()
    assert this_machine({}).llama_gpu == 3 * GIB
    assert this_machine({}).gpu is None
    assert this_machine({"CUDA_VISIBLE_DEVICES": ""}).llama_gpu is None


# Drafts


def library(*abouts: About) -> Library:
    return Library(tuple(FoundModel(about, "your folder") for about in abouts), ())


def test_drafts_are_smaller_and_those_with_the_same_tokens_come_first(tmp_path: Path) -> None:
    big = about_folder(checkpoint(tmp_path / "big", num_hidden_layers=12), "big")
    small = about_folder(checkpoint(tmp_path / "small", num_hidden_layers=1), "small")
    middle = about_folder(checkpoint(tmp_path / "middle", num_hidden_layers=2), "middle")
    large = about_folder(checkpoint(tmp_path / "large", num_hidden_layers=8), "large")
    others = [*SPECIAL[:-1], "<|else|>"]
    other = about_folder(checkpoint(tmp_path / "other", special=others, num_hidden_layers=1), "other")
    kind = about_folder(checkpoint(tmp_path / "kind", model_type="qwen2", num_hidden_layers=1), "kind")
    drafts = drafts_for(big, library(big, middle, small, large, other, kind))
    assert [proposal.name for proposal in drafts.proposals] == ["small", "kind", "middle", "other"]
    assert [proposal.cost for proposal in drafts.proposals] == ["", "", "", OTHER_TOKENS]
    assert drafts.proposals[0].source.path == str(small.place)
    (refused,) = drafts.refused
    assert refused.startswith("large cannot draft: it is too large (")


def test_a_small_one_of_the_family_is_proposed_where_none_is_here(tiny: About) -> None:
    assert tiny.config is not None
    qwen = replace(tiny, architecture="qwen3", parameters=8_000_000_000, config=narrowed(tiny.config, vocab=151936))
    (proposal,) = drafts_for(qwen, library()).proposals
    assert (proposal.name, proposal.about) == ("Qwen/Qwen3-0.6B", None)
    assert drafts_for(replace(qwen, parameters=1_000_000_000), library()).proposals == ()


def test_tokens_of_gguf_files_are_compared_without_their_padding(tmp_path: Path) -> None:
    target = replace(about_gguf(gguf(tmp_path / "a.gguf", tokens=("x", "[PAD]", "y"))), parameters=10**9)
    for tokens, same in (
        (("x", "[PAD]", "y"), True),
        (("x", "[PAD]", "y", "[PAD3]", "[PAD4]"), True),
        (("x", "[PAD1]", "y"), False),
        (("x", "y"), False),
    ):
        draft = about_gguf(gguf(tmp_path / "b.gguf", tokens=tokens))
        assert lack(target, draft) == ""
        assert cost(target, draft) == ("" if same else OTHER_TOKENS)


def test_tokens_of_a_gguf_file_are_compared_with_those_of_a_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "small", num_hidden_layers=1)
    written = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    texts = {number: text for text, number in written["model"]["vocab"].items()}
    texts |= {added["id"]: added["content"] for added in written["added_tokens"]}
    tokens = [texts[number] for number in range(len(texts))]
    small = about_folder(folder, "small")
    for changed, same in ((tokens, True), ([*tokens, "[PAD999]"], True), ([*tokens[:-1], "<|else|>"], False)):
        file = about_gguf(gguf(tmp_path / "big.gguf", tokens=changed))
        big = replace(file, parameters=10**9)
        assert cost(big, small) == cost(small, file) == ("" if same else OTHER_TOKENS)
        assert [one.cost for one in drafts_for(big, library(big, small)).proposals] == ["" if same else OTHER_TOKENS]
        # llama.cpp drafts for nothing but its own, and what it runs itself takes no part here.
        assert drafts_for(replace(small, parameters=10**9), library(file)).proposals == ()
        native = replace(file, config=small.config)
        (proposal,) = drafts_for(replace(small, parameters=10**9), library(native)).proposals
        assert proposal.source.path == str(file.place)


def test_a_pair_whose_tokens_differ_says_so_and_has_no_trees(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "big", num_hidden_layers=12)
    draft = checkpoint(tmp_path / "other", special=[*SPECIAL[:-1], "<|else|>"], num_hidden_layers=1)
    pairs = [pair(target, of) for of in (draft, target)]
    other, same = offers(Catalog(tuple(pairs), "x"), library(), ROOMY)
    assert ("draft", f"{draft}, {OTHER_TOKENS}") in words.about(other)
    assert ("draft", str(target)) in words.about(same)
    assert set(same.strategies) - set(other.strategies) == {"draft-tree"}


# Offers


def test_what_fits_comes_first_and_of_it_what_is_here(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "own" / "used")
    checkpoint(tmp_path / "own" / "found", num_hidden_layers=2)
    remote = PairSpec("x", "X", ModelSource(repo="a/b"))
    catalog = Catalog(
        (
            Pair(replace(remote, id="large"), requires=Requires(ram_gib=900.0)),
            Pair(replace(remote, id="unknown")),
            Pair(replace(remote, id="remote"), requires=Requires(ram_gib=2.0, disk_gib=1.0)),
            pair(folder),
            pair(tmp_path / "gone"),
        ),
        "p",
    )
    catalog = replace(catalog, pairs=(*catalog.pairs[:4], Pair(replace(catalog.pairs[4].spec, id="gone"))))
    found = look(ModelPlaces(Hub("http://127.0.0.1:1", tmp_path / "hub"), own=(tmp_path / "own",)))
    shown = offers(catalog, found, ROOMY)
    assert [offer.pair.id for offer in shown] == ["p", "found", "gone", "remote", "unknown", "large"]
    by_id = {offer.pair.id: offer for offer in shown}
    assert by_id["remote"].size == GIB
    assert by_id["remote"].missing == (ModelSource(repo="a/b"),)
    assert by_id["p"].size == (folder / "model.safetensors").stat().st_size
    assert "There is no folder" in by_id["gone"].fit.words
    assert not by_id["found"].declared
    assert "swift" not in by_id["found"].strategies
    assert "swift" in by_id["p"].strategies
    assert "draft" not in by_id["p"].strategies


@pytest.mark.parametrize(
    ("context", "long", "told"),
    [
        (64, False, "64 tokens of the 512 that the model holds"),
        (None, False, "512 tokens"),
        (None, True, "as many as fit of the 512 tokens that the model holds"),
    ],
)
def test_the_context_that_a_pair_wants_is_told_beside_the_models(
    tmp_path: Path, context: int | None, long: bool, told: str
) -> None:
    one = pair(checkpoint(tmp_path / "one", max_position_embeddings=512))
    one = replace(one, spec=replace(one.spec, context=context, long_context=long))
    (offer,) = offers(Catalog((one,), "x"), library(), ROOMY)
    assert ("context", told) in words.about(offer)
    assert ("as long a context as fits takes more" in dict(words.about(offer))["fits"]) == long
