"""`cache` of a pair: what has it, what refuses it and in which words, and how plans count it."""

from dataclasses import replace
from pathlib import Path

import pytest

from specchat.config.catalog import Pair
from specchat.engine.backends import GGUF_BACKEND, HF_BACKEND
from specchat.engine.errors import ModelError
from specchat.engine.loading import load
from specchat.engine.memory.gpu_need import unsupported
from specchat.engine.memory.need import Model, need
from specchat.engine.memory.plan import GIB, check_fits, plan
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.models.about import about_folder
from specchat.models.fit import fit
from specchat.models.machine import FreeMemory
from tests.engine.tiny import FAMILIES, checkpoint

pytestmark = pytest.mark.usefixtures("unmeasured")

LONG = {"max_position_embeddings": 1 << 20, "head_dim": 64}


def pair(folder: Path) -> PairSpec:
    return PairSpec("p", "P", ModelSource(path=str(folder), device="cpu"), cache="int8")


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **FAMILIES["mamba2"])
    with pytest.raises(
        ModelError, match=r'm: cache = "int8" is a form of keys and values .* has none\. Leave cache out'
    ):
        load(pair(folder), lambda _: None)


@pytest.mark.parametrize("backend", [HF_BACKEND, GGUF_BACKEND])
def test_other_decoders_refuse_it(backend: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f'p: cache = "int8" is of specchat\'s own decoder, but backend = "{backend}"'):
        load(replace(pair(tmp_path), backend=backend), lambda _: None)


def test_a_model_of_another_kind_is_refused_with_its_reason(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    config = (folder / "config.json").read_text().replace('"model_type": "llama"', '"model_type": "elsewhere"')
    (folder / "config.json").write_text(config)
    with pytest.raises(ModelError, match=r"but transformers runs this pair: model_type .*elsewhere.* Leave cache out"):
        load(pair(folder), lambda _: None)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gpu_s_kernels_take_it_where_they_take_the_model(family: str, tmp_path: Path) -> None:
    config = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family])).config
    assert unsupported(config.with_cache("int8")) == unsupported(config)


def test_plans_count_it(tmp_path: Path) -> None:
    config = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES["qwen3"] | LONG)).config
    full, int8 = (Model(config.with_cache(cache), "cpu", threads=1) for cache in (None, "int8"))  # type: ignore[arg-type]
    row = 64 + 2 * 4
    assert need(int8, 8192).cache * 4 * 64 == need(full, 8192).cache * row
    of_gpu = [need(replace(one, place="cuda"), 8192).cache for one in (int8, full)]
    assert of_gpu[0] * 2 * 64 == of_gpu[1] * row
    context = 1 << 20
    available = {"cpu": int(1.2 * plan(int8, None, context).need("cpu").total), "cuda": 0}
    check_fits(plan(int8, None, context), available, "p")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="It fits with context"):
        check_fits(plan(full, None, context), available, "p")  # type: ignore[arg-type]


def test_lists_of_models_count_it(tmp_path: Path) -> None:
    about = about_folder(checkpoint(tmp_path / "m", **FAMILIES["qwen3"] | LONG), "m")
    assert about.config
    spec = replace(pair(about.place), context=1 << 20)
    small = need(Model(about.config.with_cache("int8"), "cpu", threads=1), 1 << 20).total
    machine = FreeMemory(None, int(1.2 * small), threads=1)
    assert fit(Pair(spec), about, None, machine).verdict == "CPU"
    assert fit(Pair(replace(spec, cache=None)), about, None, machine).verdict == "no"
    elsewhere = fit(Pair(replace(spec, backend=HF_BACKEND)), about, None, FreeMemory(None, 64 * GIB))
    assert (elsewhere.verdict, elsewhere.words[:14]) == ("no", 'cache = "int8"')
