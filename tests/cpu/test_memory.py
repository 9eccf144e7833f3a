"""What a compiled decoder holds is what the planner says, in every form of weights."""

import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.config.paths import demo_model
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.hardware.threads import CORES
from specchat.engine.memory.devices import Machine, place
from specchat.engine.memory.host_need import ROWS, TREE_ROWS, VERIFY_ROWS
from specchat.engine.memory.need import Model, Need, need
from specchat.engine.memory.plan import plan
from specchat.engine.memory.vectors import SMALL
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout
from specchat.engine.model.zeros import zeros
from specchat.engine.protocol.pair import ModelSource, PairSpec, Quant
from specchat.engine.weights.checkpoint import DTYPES, Checkpoint
from tests.engine.tiny import FAMILIES, checkpoint

WITHIN = 0.01
SHAPE: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 192, "num_key_value_heads": 2}
THREADS = 3


def arrays(value: Any, seen: set[int]) -> Iterator[tuple[int, int]]:
    """(address, bytes) of the memory of every array and tensor that can be reached from `value`."""
    if id(value) in seen:
        return
    seen.add(id(value))
    match value:
        case np.ndarray():
            while isinstance(value.base, np.ndarray):
                value = value.base
            yield value.ctypes.data, value.nbytes
        case torch.Tensor():
            yield value.untyped_storage().data_ptr(), value.untyped_storage().nbytes()
        case list() | tuple():
            for part in value:
                yield from arrays(part, seen)
        case dict():
            for part in value.values():
                yield from arrays(part, seen)
        case _ if type(value).__module__.startswith("specchat."):
            for part in vars(value).values():
                yield from arrays(part, seen)


def held(decoder: CpuDecoder) -> int:
    """Bytes of all that a decoder keeps once it has read a block, checked a step and grown a tree."""
    decoder.forward(list(range(128)), 0)
    decoder.forward([1, 2], 0, layout=Layout([0], [2], [[]], 0))
    decoder.logits(torch.zeros(VERIFY_ROWS, decoder.config.hidden))
    return sum(dict(arrays(decoder, set())).values())


def stored_as(dtype: str, folder: Path, **changes: Any) -> Checkpoint:
    """A random checkpoint whose weights are stored so."""
    checkpoint(folder, torch_dtype=dtype, **SHAPE | changes)
    file = folder / "model.safetensors"
    save_file({name: tensor.to(DTYPES[dtype]) for name, tensor in load_file(file).items()}, file)
    return Checkpoint.open(folder)


def own(planned: Need) -> int:
    return planned.weights + planned.cache + planned.workspace - planned.shared


def planned(opened: Checkpoint, quant: Quant | None, threads: int) -> Need:
    """What the loader plans for a target alone."""
    pair = PairSpec("p", "P", ModelSource(path=str(opened.folder), quant=quant))
    chosen = place(pair, opened, None, 200, Machine("none", None), threads).plan
    assert chosen.target.compiled
    return chosen.need("cpu")


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16", "int8", "nf4"])
def test_a_decoder_holds_what_was_planned(form: str, tied: bool, tmp_path: Path) -> None:
    quant: Quant | None = "int8" if form == "int8" else "nf4" if form == "nf4" else None
    if quant:
        pytest.importorskip("bitsandbytes")
    opened = stored_as("float16" if quant else form, tmp_path / "m", tie_word_embeddings=tied)
    decoder = CpuDecoder(opened, 200, quant, threads=1)
    expected = planned(opened, quant, 1)
    assert own(expected) == pytest.approx(held(decoder), rel=WITHIN)
    assert expected.weights + expected.cache == pytest.approx(decoder.memory(), rel=WITHIN)
    assert expected.cache == decoder.cache.memory()


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_biases_and_norms_of_heads_count(family: str, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m", model_type=family, **SHAPE))
    assert own(planned(opened, None, CORES)) == pytest.approx(held(CpuDecoder(opened, 200)), rel=WITHIN)


MANY = {"num_experts": 24, "num_experts_per_tok": 5, "top_k_experts": 5, "moe_intermediate_size": 128}


@pytest.mark.rotated(2)
@pytest.mark.parametrize("family", ["qwen3_moe", "gemma4_moe"])
@pytest.mark.parametrize("form", ["float32", "float16", "int8", "nf4"])
def test_every_expert_counts_and_what_is_between_them(form: str, family: str, tmp_path: Path) -> None:
    quant: Quant | None = "int8" if form == "int8" else "nf4" if form == "nf4" else None
    if quant:
        pytest.importorskip("bitsandbytes")
    opened = stored_as("float16" if quant else form, tmp_path / "m", **FAMILIES[family] | MANY)
    decoder = CpuDecoder(opened, 200, quant)
    expected = planned(opened, quant, CORES)
    assert own(expected) == pytest.approx(held(decoder), rel=WITHIN)
    assert expected.weights + expected.cache == pytest.approx(decoder.memory(), rel=WITHIN)
    assert 3 * 24 * 128 * 128 * 3 < opened.config.parameters() < expected.weights * (4 if form == "nf4" else 1)


@pytest.mark.parametrize("form", ["float32", "float16", "int8"])
def test_inputs_of_layers_count_and_shared_entries_do_not(form: str, tmp_path: Path) -> None:
    quant: Quant | None = "int8" if form == "int8" else None
    opened = stored_as("float16" if quant else form, tmp_path / "m", **FAMILIES["gemma4_e"] | {"hidden_size": 128})
    decoder = CpuDecoder(opened, 200, quant)
    expected = planned(opened, quant, CORES)
    assert own(expected) == pytest.approx(held(decoder), rel=WITHIN)
    assert expected.weights + expected.cache == pytest.approx(decoder.memory(), rel=WITHIN)
    assert expected.cache == decoder.cache.memory() == 4 * 256 * (2 * 2 * 16 + 2 * 2 * 32)


@pytest.mark.parametrize("which", ["target", "draft"])
def test_the_demo_pair_holds_what_was_planned(which: str) -> None:
    opened = Checkpoint.open(demo_model(which))
    assert own(planned(opened, None, CORES)) == pytest.approx(held(CpuDecoder(opened, 200)), rel=WITHIN)


def test_a_draft_vocabulary_is_a_head_of_its_own(tmp_path: Path) -> None:
    opened = replace(Checkpoint.open(checkpoint(tmp_path / "m", **SHAPE)), drafts=tuple(range(200)))
    assert own(planned(opened, None, CORES)) == pytest.approx(held(CpuDecoder(opened, 200)), rel=WITHIN)


def test_every_thread_has_buffers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m", **SHAPE | {"hidden_size": 64}))
    assert planned(opened, None, THREADS) == planned(opened, None, 1), "a small model has one thread"
    assert VERIFY_ROWS * opened.config.parameters() < SMALL
    monkeypatch.setattr("specchat.engine.memory.vectors.SMALL", 0)
    several = held(CpuDecoder(opened, 200, threads=THREADS))
    assert own(planned(opened, None, THREADS)) == pytest.approx(several, rel=WITHIN)
    assert several > 1.05 * held(CpuDecoder(opened, 200, threads=1))


def test_models_have_buffers_of_their_own_and_load_in_turn(tmp_path: Path) -> None:
    config = Checkpoint.open(checkpoint(tmp_path / "m", **SHAPE)).config
    one = Model(config, "cpu", threads=1)
    alone, both = need(one, 200), plan(one, one, 200).need("cpu")
    assert own(both) == 2 * own(alone)
    assert both.shared == alone.shared


@pytest.mark.parametrize(("threads", "value_dim"), [(0, 32), (1, 24)])
def test_where_nothing_is_compiled_the_reference_is_planned(threads: int, value_dim: int, tmp_path: Path) -> None:
    config = Checkpoint.open(checkpoint(tmp_path / "m", **SHAPE)).config
    shape = FAMILIES["qwen3_5"] | {"linear_value_head_dim": value_dim}
    odd = Checkpoint.open(checkpoint(tmp_path / "odd", **shape)).config
    assert need(Model(odd, "cpu", threads=threads), 200) == need(Model(odd, "cpu"), 200)
    assert need(Model(config, "cpu", threads=1), 200) != need(Model(config, "cpu"), 200)


def test_as_many_rows_are_planned_as_there_are() -> None:
    assert (TREE_ROWS, ROWS) == (MAX_TREE_NODES, PREFILL_ROWS)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell what memory is used")
def test_a_cache_takes_memory_as_it_is_used() -> None:
    def used() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before, space = used(), zeros(256 << 20)
    space[0] = 1
    assert used() - before < 32 << 20
    assert (space[0], space[-1], len(space)) == (1, 0, 256 << 20)
