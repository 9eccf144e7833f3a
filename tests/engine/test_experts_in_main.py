"""Experts in main memory: of how many layers a card needs that, where pairs go then, and the price."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from measure.families import family
from specchat.engine.errors import EngineError
from specchat.engine.hardware.gpu import Gpu
from specchat.engine.kernels.gpu_shapes import PROMPT_ROWS
from specchat.engine.memory.devices import Machine, Placement, place
from specchat.engine.memory.expert_price import describe_experts, expert_price
from specchat.engine.memory.need import Model, main_expert_bytes
from specchat.engine.memory.plan import GIB, SPARE, Plan, check_fits, fits, making_room, nearest, plan
from specchat.engine.protocol.pair import Device, ModelSource, PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from tests.engine.tiny import FAMILIES, checkpoint

pytestmark = pytest.mark.usefixtures("unmeasured")

A_LAYER = {
    "gpt-oss-20b": 32 * 3 * 2880 * 2880 // 2,
    "Qwen3-Coder-30B-A3B": 128 * 3 * 2048 * 768 // 2,
    "Qwen3.6-35B-A3B": 256 * 3 * 2048 * 512 // 2,
    "Gemma 4 26B-A4B": 128 * 3 * 2816 * 704 // 2,
}
"""Bytes of a layer's experts at four bits a value."""
PADDING = {"Qwen3.6-35B-A3B": 15 * 2048 * 2}
"""Bytes of zeros in 16 bits after a router and the gate of a shared MLP that is one of the experts."""
CARDS = (8, 12, 16, 24)
RATE = 25e9


def on(card: float, planned: Plan, main: float = 64) -> Plan:
    """The plan on a card of so many GiB, most of which is free."""
    return making_room(planned, free(card, main))


def free(card: float, main: float = 64) -> dict[Any, int | None]:
    return {"cuda": int(0.94 * card * GIB), "cpu": int(main * GIB)}


@pytest.mark.parametrize("name", A_LAYER)
def test_a_card_keeps_as_many_experts_as_it_has_room_for(name: str) -> None:
    whole = plan(family(name), None, 8192)
    layers = [on(card, whole).target.experts_in_main for card in CARDS]
    assert layers == sorted(layers, reverse=True)
    assert layers[0] > 0
    assert layers[-1] == 0
    for card, count in zip(CARDS, layers, strict=True):
        chosen = on(card, whole)
        assert fits(chosen, free(card))
        assert chosen.context == 8192
        moved = count * A_LAYER[name]
        assert main_expert_bytes(chosen.target) == moved
        before, after = whole.need("cuda"), chosen.need("cuda")
        assert before.weights - after.weights == moved + count * PADDING.get(name, 0)
        # A shared MLP has buffers of its own where it is none of the experts.
        assert abs(before.total - after.total - moved) < 2**26
        assert chosen.need("cpu").total - whole.need("cpu").total == moved
        if count:
            fewer = replace(chosen, target=replace(chosen.target, experts_in_main=count - 1))
            assert not fits(fewer, free(card))


@pytest.mark.parametrize(("lockable", "card"), [(GIB, 12), (8 * GIB, 12), (GIB, 16)])
def test_no_more_experts_leave_a_card_than_the_system_locks(lockable: int, card: int) -> None:
    """Else none: a pair that does not fit then goes to the CPU as a whole."""
    whole = plan(family("Qwen3-Coder-30B-A3B"), None, 8192)
    free_to_lock, chosen = on(card, whole), on(card, replace(whole, lockable=lockable))
    asked = free_to_lock.target.experts_in_main
    assert asked > 0
    assert chosen.target.experts_in_main == (asked if free_to_lock.locked <= lockable else 0)
    assert fits(chosen, free(card)) == (free_to_lock.locked <= lockable)
    with pytest.raises(EngineError, match=r"The system locks 0\.0 GiB for the GPU\. It fits with"):
        check_fits(replace(chosen, lockable=0), free(8), "Coder")


def test_the_cache_stays_on_the_gpu() -> None:
    """A longer context takes more experts off it."""
    short, long = (on(16, plan(family("Qwen3-Coder-30B-A3B"), None, context)) for context in (4096, 32768))
    assert short.target.experts_in_main < long.target.experts_in_main
    assert long.need("cuda").cache > 7 * short.need("cuda").cache


def test_what_is_in_vain_is_left_as_it_is() -> None:
    whole = plan(family("Qwen3-Coder-30B-A3B"), None, 131072)
    assert on(8, whole) == whole
    assert on(24, plan(replace(whole.target, place="cpu"), None, 8192)).target.experts_in_main == 0
    moved = replace(whole.target, experts_in_main=20)
    assert replace(whole, target=moved).on("cpu").need("cpu") == whole.on("cpu").need("cpu")


def test_main_memory_that_does_not_hold_the_experts_is_told() -> None:
    tight = on(8, plan(family("Qwen3-Coder-30B-A3B"), None, 8192), main=6)
    with pytest.raises(EngineError) as caught:
        check_fits(tight, free(8, 6), "Coder")
    assert caught.value.kind == "memory"
    assert (
        "GiB of memory for experts that the GPU has no room for with context 8192 (weights 9.9," in caught.value.message
    )


def test_advice_counts_on_main_memory() -> None:
    """The whole model would fit at no context."""
    long = plan(family("Qwen3-Coder-30B-A3B"), None, 131072)
    assert "context = " in nearest(long, free(12))


def test_the_price_is_the_bytes_by_the_bus() -> None:
    name = "Qwen3-Coder-30B-A3B"
    whole = family(name)
    moved = replace(whole, experts_in_main=20)
    token, of_prompt = expert_price(moved, RATE)
    assert token == pytest.approx(20 * A_LAYER[name] * 8 / 128 / RATE * 1e3)
    all_read = 20 * A_LAYER[name] / PROMPT_ROWS / RATE * 1e3
    assert of_prompt == pytest.approx(all_read, rel=0.03)
    assert expert_price(whole, RATE) == (0, 0)


def test_a_prompt_reads_an_expert_again_where_a_tile_has_no_room_for_all_its_rows() -> None:
    """Those of gpt-oss have 64 rows of 512 on the average, as many as a tile: nearly half have more."""
    _, of_prompt = expert_price(replace(family("gpt-oss-20b"), experts_in_main=1), RATE)
    all_read = A_LAYER["gpt-oss-20b"] / PROMPT_ROWS / RATE * 1e3
    assert of_prompt == pytest.approx(1.47 * all_read, rel=0.01)


def test_the_price_is_said() -> None:
    whole = family("Qwen3-Coder-30B-A3B")
    assert describe_experts(whole, RATE) == ""
    assert describe_experts(replace(whole, experts_in_main=20), RATE) == (
        "Experts of 20 of 48 layers lie in main memory: about 15 ms a token, and 0.5 ms a token of a prompt, "
        "at 25 GB/s. With a shorter context more of them fit the GPU."
    )
    dense = describe_experts(replace(whole, quant=None, experts_in_main=20), RATE)
    assert "about 60 ms a token" in dense
    assert "With fewer bits a weight (quant) or a shorter context" in dense


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """Layers of experts around one without any."""
    return checkpoint(tmp_path / "sparse", **FAMILIES["qwen3_moe"])


def placed(folder: Path, gpu: int, main: int, device: Device = "auto") -> Placement:
    pair = PairSpec("p", "P", ModelSource(path=str(folder), device=device))
    return place(pair, Checkpoint.open(folder), None, 64, Machine(Gpu("RTX 4060", gpu), main))


def needed(config: ModelConfig, layers: int) -> int:
    """Free bytes of a GPU that hold all but the experts of so many layers."""
    target = Model(config, "cuda", half=True, experts_in_main=layers)
    return int(plan(target, None, 64).need("cuda").total / (1 - SPARE)) + 1


def test_a_pair_takes_the_gpu_before_the_cpu(sparse: Path) -> None:
    config = Checkpoint.open(sparse).config
    assert len(config.recipe.mixtures) == 3
    assert placed(sparse, needed(config, 0), 64 * GIB).plan.target.experts_in_main == 0
    for layers in (1, 2, 3):
        made = placed(sparse, needed(config, layers), 64 * GIB)
        assert (made.plan.target.place, made.plan.target.experts_in_main, made.note) == ("cuda", layers, "")
        assert made.otherwise is not None
        assert made.otherwise.target.place == "cpu"
    assert placed(sparse, needed(config, 3) - 1000, 64 * GIB).plan.target.place == "cpu"
    tight = needed(config, 1)
    assert placed(sparse, tight, 64 * GIB, "cuda").plan.target.experts_in_main == 1
    with pytest.raises(EngineError, match="of memory for experts that the GPU has no room for"):
        placed(sparse, tight, 1000, "cuda")
